"""The only judge of equality: whether an update computes what the baseline's does, and if not, which part differs.

An update is judged by the steps' states before and after it, so that a CUDA graph, a compiled network and a class of
the caller's own are all judged in the same way.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY
from labkit.measure.record import Pair
from labkit.measure.updates import Gradients, State, Update, by_network, host, relative, vector
from labkit.models.step import Step
from labkit.variants.registry import make_step


class Tolerances(NamedTuple):
    """How far an update may be from the baseline's, all as shares of the baseline's."""

    loss: float  # each loss, and a pool's pictures
    gradient: float  # ||difference|| of a network's gradients
    term: float  # the length of one loss term's gradient in a network
    missing_term: float  # a term of which no more is left than this is missing
    smallest_term: float  # a term is judged if its gradient is longer than this share of the longest term's
    rounding: float  # terms are judged if ||difference|| of the network's gradients is at most this
    way: float  # ||difference|| of the ways that a network's weights go in one update
    length: float  # the length of that way
    exact: bool  # whether a difference of the gradients is a matter of whole terms, not of rounding


ANYTHING = 1e9  # for what is not compared
# Seen in float64: 1e-12, but a graph holds its learning rate in float32. In float32, from one state: losses 4e-6;
# gradients 2e-2, where rounding turns the sign of a pixel in an L1 loss; terms 3e-3; ways 1e-2, and 0.1 in Adam's first
# update, which takes signs; lengths 4e-4. Weights rounded to bfloat16 go 0.2 elsewhere. In 16 bits: losses 1e-2,
# gradients 0.5, terms 0.2, lengths 3e-2; networks of a few filters round far worse.
FLOAT64 = Tolerances(1e-6, 1e-6, 1e-6, 0.05, 1e-3, ANYTHING, 1e-6, 1e-6, exact=True)
FLOAT32 = Tolerances(1e-4, 0.1, 5e-2, 0.05, 5e-2, ANYTHING, 0.15, 5e-2, exact=False)
TF32 = FLOAT32._replace(loss=1e-2, way=ANYTHING)
BITS16 = Tolerances(0.1, 2.0, ANYTHING, 0.25, 5e-2, 0.6, ANYTHING, 0.25, exact=False)
NEGLIGIBLE = 1e-3  # a gradient of this share of its network's is none: before a norm, biases have rounding only
EXPLAINED = 0.2  # a term is blamed if it explains this share of a difference


def same(step: Step, baseline: Step, batch: Pair, allowed: Tolerances) -> str | None:
    """The first part of an update that a step computes otherwise than the baseline, or None if all parts agree.

    Both steps have to be in the same state, and both take the update.

    Raises:
        LabkitError: one of them fails.
    """
    state = copy.deepcopy(baseline.state_dict())
    right, mine = Update.of(baseline, batch), Update.of(step, batch)
    terms = functools.cache(functools.partial(_terms, baseline, state, batch))
    return (
        _other_names(mine.losses, right.losses)
        or _other_numbers(mine.after, right.after)
        or _stuck(mine, right)
        or _other_losses(mine, right, allowed)
        or _other_gradients(mine, right, allowed, terms)
        or _other_way(mine, right, allowed)
    )


def other_state(mine: State, right: State) -> str | None:
    """How a state after many updates differs from the baseline's in what has to agree exactly, or None."""
    return _other_numbers(mine, right) or _other_pools(mine, right)


def _other_names(mine: dict[str, float], right: dict[str, float]) -> str | None:
    if missing := [name for name in right if name not in mine]:
        return f"it leaves out {', '.join(missing)}"
    added = [name for name in mine if name not in right]
    return f"it adds {', '.join(added)}" if added else None


def _other_numbers(mine: State, right: State) -> str | None:
    """Settings, and counts of Adam's steps. What an optimiser does not have is not compared."""
    expected = right.settings | right.counts
    for what, value in (mine.settings | mine.counts).items():
        if value != expected.get(what):
            return f"the {what} is {value}, the baseline's {expected.get(what)}"
    return None


def _learning(right: Update) -> dict[str, Tensor]:
    """The ways of the weights that a gradient moves, and not its rounding alone."""
    ways: dict[str, Tensor] = {}
    for by_name in by_network(right.moved).values():
        least = NEGLIGIBLE * vector(right.gradients, by_name).norm()
        ways |= {name: way for name, way in by_name.items() if right.gradients.get(name, way).norm() >= least}
    return ways


def _stuck(mine: Update, right: Update) -> str | None:
    """Weights that stay where they are, though the baseline's move: networks and layers by name."""
    said: list[str] = []
    for network, ways in by_network({name: way for name, way in _learning(right).items() if way.any()}).items():
        stuck = [name for name in ways if not mine.moved[name].any()]
        said += [network] if len(stuck) == len(ways) else dict.fromkeys(name.rpartition(".")[0] for name in stuck)
    shown = ", ".join(said[:4]) + (f" and {len(said) - 4} more" if len(said) > 4 else "")
    return f"{shown} {'do' if len(said) > 1 else 'does'} not learn" if said else None


def _other_losses(mine: Update, right: Update, allowed: Tolerances) -> str | None:
    """Losses and pools. Discriminators, whose losses begin with "D_", look at pools, so these are compared before."""
    bad = [name for name, loss in right.losses.items() if not relative(mine.losses[name], loss) <= allowed.loss]
    bad.sort(key=lambda name: name.startswith("D_"))
    if not bad or bad[0].startswith("D_"):
        if reason := _other_pools(mine.after, right.after, allowed.loss):
            return reason
    return f"{bad[0]} is {mine.losses[bad[0]]:.6g}, the baseline's {right.losses[bad[0]]:.6g}" if bad else None


def _other_pools(mine: State, right: State, allowed: float = ANYTHING) -> str | None:
    """A pool that draws otherwise, or holds pictures that differ by more than the share `allowed`."""
    for name, pool in right.pools.items():
        own, its = mine.pools[name]["pictures"], pool["pictures"]
        if any(mine.pools[name][key] != pool[key] for key in ("filled", "random")):
            return f"the pool {name} draws otherwise than the baseline's"
        if its is None:
            continue
        if own is None or not (own.double() - its.double()).norm() <= allowed * its.double().norm():
            return f"the pool {name} keeps other pictures than the baseline's"
    return None


def _other_gradients(
    mine: Update, right: Update, allowed: Tolerances, terms: Callable[[], dict[str, Gradients]]
) -> str | None:
    own, its = mine.gradients, right.gradients
    for network, expected in by_network({name: part for name, part in its.items() if name in own}).items():
        apart, length = vector(own, expected) - vector(its, expected), vector(its, expected).norm()
        near = apart.norm() <= allowed.gradient * length
        if not (near and allowed.exact) and apart.norm() <= allowed.rounding * length:
            if reason := _blamed(network, expected, apart, terms(), allowed):
                return reason
        if not near:
            return f"the gradients of {network} differ from the baseline's by {(apart.norm() / length).item():.2g}"
    return None


def _blamed(
    network: str, like: Gradients, apart: Tensor, terms: dict[str, Gradients], allowed: Tolerances
) -> str | None:
    """Writes the difference of two gradients as a sum over the terms, by least squares: the share of which is wrong?"""
    columns = {term: vector(parts, like) for term, parts in terms.items() if parts.keys() & like.keys()}
    longest = max((column.norm() for column in columns.values()), default=0.0)
    columns = {term: column for term, column in columns.items() if column.norm() > allowed.smallest_term * longest}
    if not columns:
        return None
    lengths = torch.stack([column.norm() for column in columns.values()])
    matrix = torch.stack(list(columns.values())) / lengths[:, None]
    ridge = 1e-12 * torch.eye(len(matrix), dtype=matrix.dtype)
    explained = torch.linalg.solve(matrix @ matrix.T + ridge, matrix @ apart)
    shares = dict(zip(columns, (explained / lengths).tolist(), strict=True))
    if allowed.exact:
        if not (apart - explained @ matrix).norm() <= EXPLAINED / 2 * apart.norm():
            return None  # the difference is no matter of whole terms
        if len(shares) > 1 and max(shares.values()) - min(shares.values()) < NEGLIGIBLE:
            return f"the gradients of {network} are {1 + max(shares.values()):.3g} times the baseline's"
    large = explained.abs() > EXPLAINED * apart.norm()
    shares = {term: share for (term, share), is_large in zip(shares.items(), large, strict=True) if is_large}
    worst = max(shares, key=lambda term: abs(shares[term]), default="")
    if worst and abs(shares[worst] + 1) < allowed.missing_term:
        return f"the gradient of {worst} does not reach {network}"
    if worst and abs(shares[worst]) > allowed.term:
        return f"the gradient of {worst} in {network} is {1 + shares[worst]:.3g} times the baseline's"
    return None


def _other_way(mine: Update, right: Update, allowed: Tolerances) -> str | None:
    """Networks whose weights go elsewhere."""
    for network, like in by_network(_learning(right)).items():
        apart = (vector(mine.moved, like) - vector(like, like)).norm()
        way, length = vector(mine.moved, like).norm(), vector(like, like).norm()
        if not apart <= allowed.way * length:
            return f"the weights of {network} go elsewhere, by {(apart / length).item():.2g} of their way"
        if not abs(way - length) <= allowed.length * length:
            return f"an update moves {network} {(way / length).item():.3g} times as far"
    return None


class ByTerm:
    """To stack on a step: each loss is differentiated by itself, too, into `terms`."""

    terms: dict[str, Gradients]

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        losses = super().losses(player, batch)  # type: ignore[misc]
        names = {weight: name for name, weight in self.model.named_parameters()}  # type: ignore[attr-defined]
        weights = self.players[player]  # type: ignore[attr-defined]
        for term, loss in losses.items():
            parts = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            pairs = zip(weights, parts, strict=True)
            self.terms[term] = {names[weight]: host(part) for weight, part in pairs if part is not None}
        return losses


def _terms(step: Step, state: dict[str, Any], batch: Pair) -> dict[str, Gradients]:
    """The gradient of each loss term of the plain step in this state. `step` itself stays as it is.

    There are none where the memory does not suffice for one more step, or with several ranks.
    """
    if ranks.count() > 1:
        return {}
    plain = make_step(copy.deepcopy(step.model).requires_grad_(True), ByTerm)
    plain.load_state_dict(copy.deepcopy(state))
    plain.terms = {}  # type: ignore[attr-defined]
    torch.manual_seed(0)
    try:
        plain(*batch)
    except OUT_OF_MEMORY:
        return {}
    return plain.terms  # type: ignore[attr-defined]
