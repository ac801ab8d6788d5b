"""The only measure of equality: whether an update computes what the baseline's does, and if not, which part differs.

An update is known by the states of the step before and after it, so that a CUDA graph, a compiled network and a class
that the caller wrote are all compared in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from labkit.measure.record import Pair
from labkit.measure.states import State, take_step
from labkit.models.step import Step

Gradients = dict[str, Tensor]  # by the name of the weight


class Tolerances(NamedTuple):
    """How far an update may be from the baseline's, each number as a share of the baseline's."""

    loss: float  # each loss, and a pool's pictures
    gradient: float  # ||difference|| of a network's gradients, and half of that of their squares, as Adam keeps them
    cosine: float  # the smallest one between two gradients of a network
    term: float  # the length of one loss term's gradient in a network
    missing_term: float  # a term counts as missing if at most this part of its gradient is left
    smallest_term: float  # a term is judged if its gradient is longer than this share of the longest term's
    rounding: float  # terms are judged if ||difference|| of the network's gradients is at most this
    displacement: float  # ||difference|| of a network's displacements, the changes of its weights in one update
    distance: float  # the length of that displacement
    heading: float  # the smallest cosine between two displacements of a network, or two gradients of a layer
    kept: float  # ||difference|| of batch norm's running statistics in a network
    exact: bool  # whether gradients differ by whole loss terms, and not by rounding


NOT_COMPARED = 1e9  # a tolerance that every number meets
NEGLIGIBLE_GRADIENT = 1e-3  # of its network's: before a norm, a bias has a gradient by rounding only
EQUAL_SHARES = 1e-3  # shares of several terms that differ by less are one factor of the whole gradient
LEAST_LAYER = 0.01  # a layer's direction is judged if its gradient is longer than this share of its network's
LEAST_EXPLAINED = 0.2  # a term is blamed if it explains more than this share of a difference
BY_ROUNDING = 3e-4  # a smaller difference of a network's gradients hides no term that is judged


class Distance(NamedTuple):
    """How far an update is from another, NaN if a loss or gradient is missing or is not a number.

    Attributes:
        losses: the largest relative difference.
        gradients: the largest ||difference|| / ||gradient|| of a network.
        cosine: the smallest between the two gradients of a network.
    """

    losses: float
    gradients: float
    cosine: float


class Update(NamedTuple):
    """One update. All tensors are on the CPU, by the name of the weight."""

    losses: dict[str, float]
    gradients: Gradients  # that PyTorch's Adam was given; empty for another optimiser
    displacements: dict[str, Tensor]  # the change of each weight
    squares: dict[str, Tensor]  # the change of Adam's second moments
    after: State

    @classmethod
    def of(cls, step: Step, batch: Pair, name: str = "given", seed: int = 0) -> Update:
        """Runs the step once, with the random numbers of this seed.

        Raises:
            LabkitError: as `take_step`.
        """
        torch.manual_seed(seed)
        before, given = State.of(step), [pictures.clone() for pictures in batch]
        losses = {loss: value.item() for loss, value in take_step(step, batch, name).items()}
        after = State.of(step)
        after.settings["batch afterwards"] = "as given" if all(map(torch.equal, batch, given)) else "overwritten"
        after.settings["seed of PyTorch's random numbers"] = torch.initial_seed()
        after.settings["number of weights whose moments are gone"] = len(before.means.keys() - after.means.keys())
        beta = next(iter(step.optimizers.values())).param_groups[0].get("betas", (0.0,))[0]
        gradients = {  # from the change of Adam's mean: a CUDA graph shows no other gradient
            weight: (mean - beta * before.means.get(weight, torch.zeros_like(mean))) / (1 - beta)
            for weight, mean in after.means.items()
        }
        return cls.between(before, after, losses, gradients)

    @classmethod
    def between(cls, before: State, after: State, losses: dict[str, float], gradients: Gradients) -> Update:
        """All that a step does between two states, as if it were one update."""
        way = {name: now - before.weights[name] for name, now in after.weights.items()}
        squares = {name: now - before.squares.get(name, 0) for name, now in after.squares.items()}
        return cls(losses, gradients, way, squares, after)

    def distance(self, right: Update) -> Distance:
        """How far this update is from the `right` one."""
        networks = by_network(right.gradients).values() if self.gradients.keys() == right.gradients.keys() else []
        pairs = [(vector(self.gradients, like), vector(like, like)) for like in networks]
        losses = [relative(self.losses.get(name, math.nan), loss) for name, loss in right.losses.items()]
        apart = [((mine - its).norm() / its.norm()).item() for mine, its in pairs]
        cosines = [torch.cosine_similarity(mine, its, dim=0).item() for mine, its in pairs]
        return Distance(_worst(max, losses), _worst(max, apart), _worst(min, cosines))


def _worst(choose: Callable[[list[float]], float], numbers: list[float]) -> float:
    return choose(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan


def relative(value: float, right: float) -> float:
    """The difference as a share of the right value, or 0 if both are 0, as a deviation loss is at first."""
    return 0.0 if value == right else abs(value - right) / (abs(right) or math.nan)


def first_difference(
    mine: Update, right: Update, allowed: Tolerances, terms: Callable[[], dict[str, Gradients]]
) -> str | None:
    """How an update first differs from the baseline's from the same state, or None if they agree.

    `terms` gives the gradient of each loss term of the baseline's update.
    """
    return (
        _names_difference(mine.losses, right.losses)
        or _numbers_difference(mine.after, right.after)
        or _not_learning(mine, right)
        or _losses_difference(mine, right, allowed)
        or _gradients_difference(mine, right, allowed, terms)
        or _displacements_difference(mine, right, allowed)
        or _kept_difference("changes of Adam's second moments", mine.squares, right.squares, 2 * allowed.gradient)
        or _kept_difference("batch norm's running statistics", mine.after.buffers, right.after.buffers, allowed.kept)
    )


def way_difference(mine: Update, right: Update, allowed: Tolerances) -> str | None:
    """How many updates, each step's from its own state, differ from the baseline's, or None.

    Rounding alone soon leads to different weights. Counts, settings and pools have to agree exactly, and weights and
    second moments have to go about as far.
    """
    apart = _numbers_difference(mine.after, right.after) or _pools_difference(mine.after, right.after)
    if apart := apart or _not_learning(mine, right) or _displacements_difference(mine, right, allowed):
        return apart
    for network, like in by_network({name: way for name, way in right.squares.items() if name in mine.squares}).items():
        times = (vector(mine.squares, like).norm() / vector(like, like).norm()).item()
        if not 1 - allowed.kept <= times <= 1 + allowed.kept:
            return f"Adam's second moments of {network} grow {times:.3g} times as much"
    return None


def left_out(mine: State, right: State) -> int:
    """The most updates that a weight has missed."""
    return max((right.counts.get(name, count) - count for name, count in mine.counts.items()), default=0)


def _names_difference(mine: dict[str, float], right: dict[str, float]) -> str | None:
    """What is missing. A number that it returns beside the losses may be of any kind: what it learns is compared."""
    missing = [name for name in right if name not in mine]
    return f"it leaves out {', '.join(missing)}" if missing else None


def _numbers_difference(mine: State, right: State) -> str | None:
    """Settings and counts. A number that the step's optimiser does not have is not compared."""
    expected = right.settings | right.counts
    for description, value in (mine.settings | mine.counts).items():
        if value != expected.get(description):
            return f"the {description} is {value}, the baseline's {expected.get(description)}"
    return None


def _learning(right: Update) -> dict[str, Tensor]:
    """The displacements of those weights that have a gradient, and not its rounding alone."""
    displacements: dict[str, Tensor] = {}
    for by_name in by_network(right.displacements).values():
        least = NEGLIGIBLE_GRADIENT * vector(right.gradients, by_name).norm()
        displacements |= {name: own for name, own in by_name.items() if right.gradients.get(name, own).norm() >= least}
    return displacements


def _not_learning(mine: Update, right: Update) -> str | None:
    """Networks or layers whose weights stay as they are, while the baseline's change."""
    still: list[str] = []
    for network, learning in by_network({name: own for name, own in _learning(right).items() if own.any()}).items():
        stuck = [name for name in learning if not mine.displacements[name].any()]
        still += [network] if len(stuck) == len(learning) else dict.fromkeys(name.rpartition(".")[0] for name in stuck)
    shown = ", ".join(still[:4]) + (f" and {len(still) - 4} more" if len(still) > 4 else "")
    return f"{shown} {'do' if len(still) > 1 else 'does'} not learn" if still else None


def _losses_difference(mine: Update, right: Update, allowed: Tolerances) -> str | None:
    """Pools come before the losses of discriminators, which begin with "D_": discriminators look at pools."""
    bad = [name for name, loss in right.losses.items() if not relative(mine.losses[name], loss) <= allowed.loss]
    bad.sort(key=lambda name: name.startswith("D_"))
    if not bad or bad[0].startswith("D_"):
        if reason := _pools_difference(mine.after, right.after, allowed.loss):
            return reason
    return f"{bad[0]} is {mine.losses[bad[0]]:.6g}, the baseline's {right.losses[bad[0]]:.6g}" if bad else None


def _pools_difference(mine: State, right: State, allowed: float = NOT_COMPARED) -> str | None:
    """A pool that draws other numbers, or holds pictures that differ by more than the share `allowed`."""
    for name, pool in right.pools.items():
        own, its = mine.pools[name]["pictures"], pool["pictures"]
        if any(mine.pools[name][key] != pool[key] for key in ("filled", "random")):
            return f"the pool {name} draws otherwise than the baseline's"
        if its is None:
            continue
        if own is None or not (own.double() - its.double()).norm() <= allowed * its.double().norm():
            return f"the pool {name} keeps other pictures than the baseline's"
    return None


def _gradients_difference(
    mine: Update, right: Update, allowed: Tolerances, terms: Callable[[], dict[str, Gradients]]
) -> str | None:
    own, its = mine.gradients, right.gradients
    for network, expected in by_network({name: part for name, part in its.items() if name in own}).items():
        difference, length = vector(own, expected) - vector(its, expected), vector(its, expected).norm()
        near = difference.norm() <= allowed.gradient * length
        small = difference.norm() <= (allowed.gradient if allowed.exact else BY_ROUNDING) * length
        if not small and difference.norm() <= allowed.rounding * length:
            if reason := _wrong_term(network, expected, difference, terms(), allowed):
                return reason
        if not near:
            return f"the gradients of {network} differ from the baseline's by {(difference.norm() / length).item():.2g}"
        layers = {name: {name: part} for name, part in expected.items() if part.dim() > 1}
        for name, part in ({network: expected} | layers).items():
            cosine = torch.cosine_similarity(vector(own, part), vector(its, part), dim=0).item()
            least = allowed.cosine if name == network else allowed.heading
            if not cosine >= least and vector(its, part).norm() > LEAST_LAYER * length:
                return f"the gradient of {name} points elsewhere: its cosine with the baseline's is {cosine:.2f}"
    return None


def _wrong_term(
    network: str, like: Gradients, difference: Tensor, terms: dict[str, Gradients], allowed: Tolerances
) -> str | None:
    """The loss term that explains the difference of two gradients, written as a sum over the terms by least squares."""
    columns = {term: vector(parts, like) for term, parts in terms.items() if parts.keys() & like.keys()}
    longest = max((column.norm() for column in columns.values()), default=0.0)
    columns = {term: column for term, column in columns.items() if column.norm() > allowed.smallest_term * longest}
    if not columns:
        return None
    lengths = torch.stack([column.norm() for column in columns.values()])
    matrix = torch.stack(list(columns.values())) / lengths[:, None]
    ridge = 1e-12 * torch.eye(len(matrix), dtype=matrix.dtype)
    explained = torch.linalg.solve(matrix @ matrix.T + ridge, matrix @ difference)
    shares = dict(zip(columns, (explained / lengths).tolist(), strict=True))
    if allowed.exact:
        if not (difference - explained @ matrix).norm() <= LEAST_EXPLAINED / 2 * difference.norm():
            return None  # whole terms do not explain it
        if len(shares) > 1 and max(shares.values()) - min(shares.values()) < EQUAL_SHARES:
            return f"the gradients of {network} are {1 + max(shares.values()):.3g} times the baseline's"
    large = explained.abs() > LEAST_EXPLAINED * difference.norm()
    shares = {term: share for (term, share), is_large in zip(shares.items(), large, strict=True) if is_large}
    worst = max(shares, key=lambda term: abs(shares[term]), default="")
    if worst and abs(shares[worst] + 1) < allowed.missing_term:
        return f"the gradient of {worst} does not reach {network}"
    if worst and abs(shares[worst]) > allowed.term:
        return f"the gradient of {worst} in {network} is {1 + shares[worst]:.3g} times the baseline's"
    return None


def _displacements_difference(mine: Update, right: Update, allowed: Tolerances) -> str | None:
    """A network whose weights change by something else than the baseline's."""
    for network, like in by_network(_learning(right)).items():
        own, its = vector(mine.displacements, like), vector(like, like)
        difference, distance = (own - its).norm(), its.norm()
        if not difference <= allowed.displacement * distance:
            return f"the weights of {network} go elsewhere, by {(difference / distance).item():.2g} of their way"
        if not abs(own.norm() - distance) <= allowed.distance * distance:
            return f"{network} moves {(own.norm() / distance).item():.3g} times as far"
        if not (cosine := torch.cosine_similarity(own, its, dim=0).item()) >= allowed.heading and distance:
            return f"the weights of {network} go elsewhere: the cosine of their way with the baseline's is {cosine:.2f}"
    return None


def _kept_difference(what: str, own: Mapping[str, Tensor], its: Mapping[str, Tensor], allowed: float) -> str | None:
    """The network in which what is kept differs by more than the share `allowed`, or None.

    Tensors that the step's optimiser does not have are not compared.
    """
    for network, like in by_network({name: one for name, one in its.items() if name in own}).items():
        if not (vector(own, like) - vector(like, like)).norm() <= allowed * vector(like, like).norm():
            return f"{what} of {network} differ from the baseline's"
    return None


def by_network(by_name: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The tensors of each network, by its name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in by_name.items():
        parts.setdefault(name.partition(".")[0], {})[name] = value
    return parts


def vector(by_name: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Tensor:
    """The values of the weights in `like` as one vector, with zeros for a weight without a value."""
    return torch.cat([by_name.get(name, torch.zeros_like(part)).flatten().double() for name, part in like.items()])
