"""How an update of a step differs from the baseline's: the first part that does, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.measure.equivalence import other_names, relative
from labkit.measure.updates import State, Terms, Update

OF_JUDGES = "D_"  # the losses that look at pools are called so
LENGTH_OF_MANY = 0.1  # after many updates; in 16 bits three times that
# In 16 bits no term is judged if rounding is more than this share of a gradient; nor a term of less than this share of
# the gradient, or of the rounding; and all that is told is whether it is missing, with its share at -1 to within this.
NOISY, FAINT, AUDIBLE, MISSING = 0.6, 0.05, 0.2, 0.25
TINY = 1e-3  # a gradient of this share of the network's does not count: biases before a norm have rounding only


class Limits(NamedTuple):
    """How far an update may be from the baseline's.

    losses: relative. gradients: ||difference|| / ||gradient|| of a network. term: the gradient of one loss term in a
    network may be longer or shorter by this share. length: so may the way that a network's weights go. exact: whether
    weights, moments and pools have to agree number by number, within the limit for losses.
    """

    losses: float
    gradients: float
    term: float
    length: float
    exact: bool


# Seen in float64: 1e-12, but a graph holds its learning rate in float32. In float32, from one state: losses 2e-6, of
# GPUs with TF32 more; gradients 2e-2, where rounding turns the sign of a pixel in an L1 loss; terms 3e-3; lengths 4e-4.
# In 16 bits: losses 1e-2, gradients 0.5, terms 0.2, lengths 3e-2; networks of a few filters round far worse.
IN_FLOAT64 = Limits(losses=1e-6, gradients=1e-6, term=1e-6, length=1e-6, exact=True)
IN_FLOAT32 = Limits(losses=1e-2, gradients=0.1, term=5e-2, length=5e-2, exact=False)
IN_16_BITS = Limits(losses=0.1, gradients=2.0, term=0.5, length=0.25, exact=False)


def difference(mine: Update, right: Update, limits: Limits, terms: Callable[[], Terms]) -> str | None:
    """The first part of an update that is not the baseline's, in words that name it; None if all are.

    Args:
        mine, right: the update, and the baseline's from the same state.
        limits: how far apart they may be.
        terms: gives the gradient of each loss term, if they are needed.
    """
    return (
        other_names(mine.losses, right.losses)
        or _other_settings(mine.after, right.after)
        or _not_learning(mine, right)
        or _other_losses(mine, right, limits)
        or _other_gradients(mine, right, limits, terms)
        or _other_way(mine, right, limits)
    )


def state_difference(mine: State, right: State, start: dict[str, Tensor], limits: Limits) -> str | None:
    """How the state after many updates differs from the baseline's after as many on the same batches, or None.

    Rounding alone soon sends the weights on other ways, but these ways stay equally long (seen: to 2 %), and the
    gradients on them (3 %). Whatever is counted has to agree exactly.

    Args:
        mine, right: the states.
        start: the weights that both began with.
        limits: those for one update.
    """
    allowed = LENGTH_OF_MANY * (3 if limits == IN_16_BITS else 1)
    if reason := _other_settings(mine, right):
        return reason
    for name, count in right.counts.items():
        if mine.counts.get(name, 0) != count:
            return f"Adam has taken {mine.counts.get(name, 0)} steps for {name}, the baseline's {count}"
    for name, pool in right.pools.items():
        if reason := _other_pool(name, mine.pools[name] | {"pictures": pool["pictures"]}, pool, IN_FLOAT32):
            return reason
        if (mine.pools[name]["pictures"] is None) != (pool["pictures"] is None):
            return f"the pool {name} keeps no pictures, or others than the baseline's"
    ways = ({name: own.weights[name] - begin for name, begin in start.items()} for own in (mine, right))
    means = ({name: square.sqrt() for name, square in own.squares.items()} for own in (mine, right))
    said = {"the weights of {} have gone {:.3g} times as far": ways, "{} had gradients {:.3g} times as large": means}
    for words, (own, its) in said.items():
        for network, expected in _by_network(its).items():
            length, right_length = _joined(own, expected).norm(), _joined(expected, expected).norm()
            if not abs(length - right_length) <= allowed * right_length:
                return words.format(network, (length / right_length).item())
    return None


def _other_settings(mine: State, right: State) -> str | None:
    if missing := right.settings.keys() - mine.settings.keys():
        return f"it has no optimiser for the {', '.join(sorted(missing))}, which never learn"
    for player, settings in right.settings.items():
        for name, value in settings.items():
            own = mine.settings[player].get(name)
            if name == "lr" and own is not None and relative(own, value) <= 1e-6:  # a graph keeps it in float32
                continue
            if own != value:
                said = {"lr": "learning rate"}.get(name, name)
                return f"the {said} of the {player} is {own}, the baseline's {value}"
    for name, pool in right.pools.items():
        if name not in mine.pools or mine.pools[name]["size"] != pool["size"]:
            size = mine.pools[name]["size"] if name in mine.pools else 0
            return f"the pool {name} keeps {size} pictures, the baseline's {pool['size']}"
    return None


def _not_learning(mine: Update, right: Update) -> str | None:
    """Weights for which Adam took another number of steps."""
    if not mine.after.means and right.after.means:
        return "its optimisers keep no moments, as Adam does"
    steps, expected = (
        {name: own.after.counts.get(name, 0) - own.before.counts.get(name, 0) for name in right.after.counts}
        for own in (mine, right)
    )
    if stuck := [name for name, n in expected.items() if n and not steps[name]]:
        return f"{_parts(stuck, right.after.counts)} not learn: Adam takes no step"
    if other := [name for name, n in expected.items() if n != steps[name]]:
        return f"Adam takes {steps[other[0]]} steps for {other[0]} in one update, the baseline's {expected[other[0]]}"
    return None


def _other_losses(mine: Update, right: Update, limits: Limits) -> str | None:
    bad = [name for name, loss in right.losses.items() if not relative(mine.losses[name], loss) <= limits.losses]
    of_judges = [name for name in bad if name.startswith(OF_JUDGES)]
    if first := [name for name in bad if name not in of_judges]:
        return _loss(first[0], mine, right)
    for name, pool in right.after.pools.items():
        if reason := _other_pool(name, mine.after.pools[name], pool, limits):
            return reason
    return _loss(of_judges[0], mine, right) if of_judges else None


def _loss(name: str, mine: Update, right: Update) -> str:
    return f"{name} is {mine.losses[name]:.6g}, the baseline's {right.losses[name]:.6g}"


def _other_pool(name: str, mine: dict[str, Any], right: dict[str, Any], limits: Limits) -> str | None:
    if mine["filled"] != right["filled"]:
        return f"the pool {name} holds {mine['filled']} pictures, the baseline's {right['filled']}"
    if mine["random"] != right["random"]:
        return f"the pool {name} draws otherwise than the baseline's"
    own, its = mine["pictures"], right["pictures"]
    if (own is None) != (its is None):
        return f"the pool {name} keeps {'no' if own is None else 'its'} pictures, unlike the baseline's"
    # In 16 bits a picture may differ by a few percent of the range that pictures have.
    if its is not None and not (own - its).norm() <= max(limits.losses, 1e-6) * its.norm():
        return f"the pool {name} keeps other pictures than the baseline's"
    return None


def _other_gradients(mine: Update, right: Update, limits: Limits, terms: Callable[[], Terms]) -> str | None:
    own, its = mine.gradients(), right.gradients()
    for network, expected in _by_network(its).items():
        length = _joined(expected, expected).norm()
        if silent := [name for name, part in expected.items() if part.any() and not own.get(name, part * 0).any()]:
            if max(expected[name].norm() for name in silent) > TINY * length:
                return f"{_parts(silent, its)} not learn: the gradient is 0"
        apart = _joined(own, expected) - _joined(expected, expected)
        near = apart.norm() <= limits.gradients * length
        hidden = not limits.exact and apart.norm() <= NOISY * length  # a term may be missing below the limit
        if not near or hidden:
            if reason := _blamed(network, expected, apart, terms(), limits):
                return reason
        if not near:
            return f"the gradients of {network} differ from the baseline's by {(apart.norm() / length).item():.2g}"
    return None


def _blamed(network: str, like: dict[str, Tensor], apart: Tensor, terms: Terms, limits: Limits) -> str | None:
    """Writes the difference of two gradients as a sum over the terms, by least squares: the share of which is wrong?"""
    columns = {term: _joined(found, like) for term, found in terms.items() if found.keys() & like.keys()}
    longest = max((column.norm() for column in columns.values()), default=0.0)
    least = TINY if limits.exact else FAINT
    columns = {term: column for term, column in columns.items() if column.norm() > least * longest}
    if not columns or not apart.any():
        return None
    matrix = torch.stack([column / column.norm() for column in columns.values()])
    ridge = 1e-12 * torch.eye(len(matrix), dtype=matrix.dtype)
    found = torch.linalg.solve(matrix @ matrix.T + ridge, matrix @ apart)
    if limits.exact and not (apart - found @ matrix).norm() <= 0.1 * apart.norm():
        return None  # it is no matter of whole terms
    shares = {term: (share / columns[term].norm()).item() for term, share in zip(columns, found, strict=True)}
    if limits.exact and len(shares) > 1 and max(shares.values()) - min(shares.values()) < TINY:
        return f"the gradients of {network} are {1 + max(shares.values()):.3g} times the baseline's"
    worst = max(shares, key=lambda term: abs(shares[term]))
    missing = abs(shares[worst] + 1) < (MISSING if limits == IN_16_BITS else 0.05)
    if limits == IN_16_BITS and not (missing and columns[worst].norm() > AUDIBLE * apart.norm()):
        return None
    if not abs(shares[worst]) > limits.term:
        return None
    if missing:
        return f"the gradient of {worst} does not reach {network}"
    return f"the gradient of {worst} in {network} is {1 + shares[worst]:.3g} times the baseline's"


def _other_way(mine: Update, right: Update, limits: Limits) -> str | None:
    """Weights that go elsewhere, though the gradients are the same."""
    own = mine.moved()
    for network, expected in _by_network(right.moved()).items():
        way, right_way = _joined(own, expected), _joined(expected, expected)
        apart, length = (way - right_way).norm(), right_way.norm()
        if limits.exact and not apart <= limits.losses * length:
            share = (apart / length).item()
            return f"the weights of {network} go elsewhere, by {share:.2g} of their way, after the same gradients"
        if not abs(way.norm() - length) <= limits.length * length:
            return f"an update moves {network} {(way.norm() / length).item():.3g} times as far"
    for network, expected in _by_network(right.after.squares).items():
        mean, right_mean = _joined(mine.after.squares, expected), _joined(expected, expected)
        if limits.exact and not (mean - right_mean).norm() <= limits.losses * right_mean.norm():
            return f"Adam's mean squares of {network} are not the baseline's"
    return None


def _parts(names: Sequence[str], all_names: Iterable[str]) -> str:
    """Weights in words, whole networks and layers where all of theirs are meant; with "does" or "do"."""
    known = list(all_names)
    whole = [net for net in _networks(names) if all(name in names for name in known if name.startswith(f"{net}."))]
    rest = dict.fromkeys(name.rpartition(".")[0] for name in names if name.partition(".")[0] not in whole)
    said = [*whole, *rest]
    shown = ", ".join(said[:4]) + (f" and {len(said) - 4} more" if len(said) > 4 else "")
    return f"{shown} {'do' if len(said) > 1 else 'does'}"


def _by_network(by_name: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in by_name.items():
        parts.setdefault(name.partition(".")[0], {})[name] = value
    return parts


def _networks(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _joined(by_name: dict[str, Tensor], like: dict[str, Tensor]) -> Tensor:
    """The values of the weights in `like` as one vector; zeros for a weight without a value."""
    return torch.cat([by_name.get(name, torch.zeros_like(own)).flatten().double() for name, own in like.items()])
