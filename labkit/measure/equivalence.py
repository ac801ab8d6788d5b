"""Whether a step computes the same as the baseline: the looks at it, each with its tolerances.

New steps take their first updates in float64, on corners of the pictures, and timed steps take one more afterwards.
`labkit.measure.same` then compares the two updates. docs/speedups.md has a table of what each look can see.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, precision
from labkit.measure.record import Pair
from labkit.measure.same import (
    NOT_COMPARED,
    Gradients,
    Tolerances,
    Update,
    first_difference,
    state_difference,
)
from labkit.measure.states import State, host, rounded
from labkit.measure.timing import has_tf32
from labkit.measure.walks import (
    SIDES,
    Maker,
    Walk,
    computing_in,
    corner,
    full,
    moved,
    new,
    rate,
    sides,
    walk,
    without_dropout,
)
from labkit.models.step import Step
from labkit.variants import has_dropout
from labkit.variants.registry import SPEEDUPS, make_step

# Seen in float64: 1e-12, but a graph holds its learning rate in float32. In float32, from one state: losses 4e-6;
# gradients 2e-2, where rounding turns the sign of a pixel in an L1 loss; terms 3e-3; displacements 1e-2, and 0.1 in
# Adam's first update, which takes signs; distances 4e-4. Weights rounded to bfloat16 go 0.2 elsewhere. In 16 bits, on
# pictures of 48 pixels or more: losses 1e-2, cosines of gradients 0.86 (0.94 to 0.97 on an H200, at 256 pixels) and of
# a layer's 0.82, terms 0.2, distances 3e-2, cosines of displacements 0.6; on 16 pixels rounding is far worse.
FLOAT64 = Tolerances(
    loss=1e-6,
    gradient=1e-6,
    cosine=-1.0,
    term=1e-6,
    missing_term=0.05,
    smallest_term=1e-3,
    rounding=NOT_COMPARED,
    displacement=1e-6,
    distance=1e-6,
    heading=-1.0,
    kept=1e-6,
    exact=True,
)
FLOAT32 = FLOAT64._replace(
    loss=1e-4, gradient=0.1, term=5e-2, smallest_term=5e-2, displacement=0.15, distance=1e-2, kept=5e-2, exact=False
)
TF32 = FLOAT32._replace(loss=1e-2, displacement=NOT_COMPARED, distance=5e-2)
BITS16 = FLOAT32._replace(
    loss=0.1,
    gradient=1.0,
    cosine=0.8,
    term=NOT_COMPARED,
    missing_term=0.25,
    rounding=0.6,
    displacement=NOT_COMPARED,
    distance=0.25,
    heading=0.3,
    kept=0.5,
)


class EquivalenceCheck:
    """Compares steps that have been timed with the baseline.

    Args:
        maker: makes the baseline.
        baseline: a baseline that has been timed. Its state changes here.
        batch: (real_a, real_b), as in the timing.
    """

    def __init__(self, maker: Maker, baseline: Step, batch: Pair) -> None:
        self.maker, self.baseline, self.batch = maker, baseline, batch
        self.timed, self.state = State.of(baseline), copy.deepcopy(baseline.state_dict())
        self.full_pools = functools.cache(self._full_pools)  # these are the same for every step that is judged
        self.walked = functools.cache(functools.partial(self._walk, maker))

    def difference(self, maker: Maker, step: Step) -> tuple[str | None, str]:
        """How the step differs from the baseline, or None, and a note if a look was not possible, or ""."""
        note = ""
        own = [base for base in declaring_16_bits(step) if base not in SPEEDUPS.values()]
        for dtype in SIDES:  # autocast leaves float64 alone
            try:
                reason = self.in_first_updates(maker, step, dtype)
            except Exception as error:  # of classes that are not ours
                note = note or f"float64 could not be tried ({error})"
                continue
            if not reason:
                break
            if not own or dtype == torch.float32:
                return reason, note
            note = f"in float64, {reason}; so it was held to the rounding of 16 bits"
        try:
            reason = self.after_timing(step)
        except OUT_OF_MEMORY:
            return None, "the memory did not suffice for another look after the timing"
        except Exception as error:
            reason = str(error)
        return f"after the timing rounds, {reason}" if reason else None, note

    def in_first_updates(self, maker: Maker, step: Step, dtype: torch.dtype) -> str | None:
        """How new steps of both kinds differ in their first updates, from full pools, on corners of the pictures."""
        draws = has_dropout(step.model)
        with computing_in(dtype):
            for side, updates in sides(self.batch, step, dtype).items():
                reason = None
                if dtype == torch.float64:
                    mine, right = self._walk(maker, side, updates, draws, step), self.walked(side, updates, draws)
                    apart = ranks.first(first_difference(mine.whole, right.whole, FLOAT64, dict))
                    if not apart and all(ranks.gathered(mine.translates_as(right))):
                        continue
                    if draws:  # maybe in another order
                        reason = ranks.first(self.repeated_draws(maker, side))
                    elif not apart:
                        reason = f"after {updates} updates, it translates otherwise in evaluation mode"
                if reason := self.first_fault(maker, step, dtype, side, updates) or reason:
                    return reason
        return None

    def _walk(self, maker: Maker, side: int, updates: int, dropout: bool, timed: Step | None = None) -> Walk:
        """Where a new step arrives in float64."""
        step = new(maker, torch.float64, self.full_pools(torch.float64, side), timed, dropout)
        return walk(step, corner(self.batch, side, torch.float64), updates)

    def _full_pools(self, dtype: torch.dtype, side: int) -> dict[str, Any]:
        """States of pools that are full of noise, for pictures of this size."""
        filling = new(self.maker, dtype)
        filling(*corner(self.batch, side, dtype))
        return {pool: full(state) for pool, state in filling.state_dict()["pools"].items()}

    def repeated_draws(self, maker: Maker, side: int) -> str | None:
        """A loss that does not depend on random numbers, and the baseline's does, in words, or None."""
        mine, right = (
            [
                Update.of(new(one, torch.float64, dropout=True), corner(self.batch, side, torch.float64), seed=seed)
                for seed in (1, 2)
            ]
            for one in (maker, self.maker)
        )
        for loss, value in right[0].losses.items():
            if value != right[1].losses[loss] and mine[0].losses.get(loss) == mine[1].losses.get(loss):
                return f"{loss} is the same with other random numbers, and the baseline's is not"
        return None

    def first_fault(self, maker: Maker, step: Step, dtype: torch.dtype, side: int, updates: int) -> str | None:
        """How the first of so many updates that differs does so, each compared with the baseline's."""
        pools, small = self.full_pools(dtype, side), corner(self.batch, side, dtype)
        baseline, mine = new(self.maker, dtype, pools), new(maker, dtype, pools, timed=step)
        weights = State.of(mine).weights
        for weight, right in State.of(baseline).weights.items():
            if not (weights[weight] - right).norm() <= FLOAT64.loss * right.norm():
                return f"{weight} does not begin as the baseline's"
        exact, in_float32 = dtype == torch.float64, BITS16 if declaring_16_bits(step) else FLOAT32
        for k in range(updates):
            allowed = FLOAT64 if exact else copy_state(baseline, mine, in_float32)
            baseline.scale_lr(rate(k))
            mine.scale_lr(rate(k))
            if reason := in_one_update(mine, baseline, small, k, allowed):
                return f"in update {k + 1}, {reason}" if k else reason
        return None

    def after_timing(self, step: Step) -> str | None:
        """How a timed step's state, or one more update from it, differs from the baseline's after as many updates.

        Rounding alone soon leads to different weights, but counts, settings and pools have to agree exactly.
        """
        allowed, timed, in_16_bits = timed_tolerances(step), State.of(step), declaring_16_bits(step)
        if getattr(step, "scaler", None):  # it skips an update whose gradients overflow
            timed = timed._replace(counts=self.timed.counts)
        if reason := state_difference(timed, self.timed):
            return reason
        if not in_16_bits and (short := [one for one in rounded(timed) if one not in rounded(self.timed)]):
            return f"{short[0]} is rounded to 16 bits"
        if has_dropout(step.model):  # it may draw in another order
            if isinstance(step, SPEEDUPS["graph"]):
                return None  # what it has captured continues to drop
            without_dropout(step)
            without_dropout(self.baseline)
        self.baseline.load_state_dict(copy.deepcopy(self.state))  # steps judged before have moved it on
        for k in (1, 2):
            reason = in_one_update(step, self.baseline, self.batch, k, copy_state(self.baseline, step, allowed))
            if reason is None or not in_16_bits:
                break  # in 16 bits, rounding may look like a fault once, but not twice
        return reason


def in_one_update(step: Step, baseline: Step, batch: Pair, k: int, allowed: Tolerances) -> str | None:
    """How an update of a step differs from the baseline's on any rank, or None. Both take it, from the same state.

    Raises:
        LabkitError: one of them fails.
    """
    batch, state = moved(batch, k), copy.deepcopy(baseline.state_dict())
    right, mine = Update.of(baseline, batch, seed=k), Update.of(step, batch, seed=k)
    by_term = functools.cache(functools.partial(gradients_by_term, baseline, state, batch))
    return ranks.first(first_difference(mine, right, allowed, by_term))  # or they would take other numbers of updates


def copy_state(baseline: Step, step: Step, allowed: Tolerances) -> Tolerances:
    """Gives the baseline the state of a step, without Adam's moments if the step's optimisers are of another kind.

    Returns:
        The tolerances. Displacements are not compared if the moments may differ.
    """
    state, own = copy.deepcopy(step.state_dict()), baseline.state_dict()["optimizers"]
    for player, expected in own.items():
        saved = state["optimizers"][player]
        if saved["kind"] == expected["kind"] and len(saved["state"]) == len(expected["state"]):
            mine, its = places(step, player), places(baseline, player)  # its groups of weights may be others
            expected["state"] = {its.index(mine[key]): moments for key, moments in saved["state"].items()}
        elif saved["state"] or expected["state"]:
            allowed = allowed._replace(displacement=NOT_COMPARED, distance=NOT_COMPARED, heading=-1.0)
    baseline.load_state_dict(state | {"optimizers": own})
    return allowed


def places(step: Step, player: str) -> list[int]:
    """The place of each weight of the player's optimiser, in the optimiser's order, among the player's weights."""
    known = {weight: place for place, weight in enumerate(step.players[player])}
    return [known[weight] for group in step.optimizers[player].param_groups for weight in group["params"]]


def timed_tolerances(step: Step) -> Tolerances:
    """The tolerances for a timed step."""
    weight = next(step.model.parameters())
    rounded_to = precision("cuda" if weight.is_cuda else "mkldnn", "conv")
    if declaring_16_bits(step) or (rounded_to == "bf16" and weight.dtype == torch.float32):
        return BITS16
    if weight.dtype == torch.float64:
        return FLOAT64
    return TF32 if rounded_to == "tf32" and (has_tf32(weight.device) or weight.is_cpu) else FLOAT32


def declaring_16_bits(step: Step) -> list[type]:
    """The classes of the step, labkit's or the caller's, that say ``tolerance = "16-bit"``."""
    return [base for base in type(step).__mro__ if vars(base).get("tolerance") == "16-bit"]


class ByTerm:
    """Stacked on a step, it also keeps the gradient of each loss by itself, in `terms`."""

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


def gradients_by_term(step: Step, state: dict[str, Any], batch: Pair) -> dict[str, Gradients]:
    """The gradient of each loss term of the plain step in this state. `step` itself stays as it is.

    The dict is empty if the memory does not suffice for one more step, or with several ranks.
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
