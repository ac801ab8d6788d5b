"""Whether a step computes the same as the baseline: the looks at it, each with its tolerances.

New steps take their first updates in float64, on corners of the pictures, and timed steps take one more afterwards.
`labkit.measure.same` then compares the two updates.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.record import Pair
from labkit.measure.same import (
    NOT_COMPARED,
    Gradients,
    State,
    Tolerances,
    Update,
    first_difference,
    host,
    state_difference,
)
from labkit.measure.timing import flags, has_tf32
from labkit.models.step import Step, place_of
from labkit.variants import has_dropout
from labkit.variants.registry import SPEEDUPS, make_step

# Seen in float64: 1e-12, but a graph holds its learning rate in float32. In float32, from one state: losses 4e-6;
# gradients 2e-2, where rounding turns the sign of a pixel in an L1 loss; terms 3e-3; displacements 1e-2, and 0.1 in
# Adam's first update, which takes signs; distances 4e-4. Weights rounded to bfloat16 go 0.2 elsewhere. In 16 bits:
# losses 1e-2, gradients 0.5, terms 0.2, distances 3e-2; networks of a few filters round far worse.
FLOAT64 = Tolerances(
    loss=1e-6,
    gradient=1e-6,
    term=1e-6,
    missing_term=0.05,
    smallest_term=1e-3,
    rounding=NOT_COMPARED,
    displacement=1e-6,
    distance=1e-6,
    exact=True,
)
FLOAT32 = FLOAT64._replace(
    loss=1e-4, gradient=0.1, term=5e-2, smallest_term=5e-2, displacement=0.15, distance=5e-2, exact=False
)
TF32 = FLOAT32._replace(loss=1e-2, displacement=NOT_COMPARED)
BITS16 = FLOAT32._replace(
    loss=0.1, gradient=2.0, term=NOT_COMPARED, missing_term=0.25, rounding=0.6, displacement=NOT_COMPARED, distance=0.25
)

# The looks at new steps. Pixels of a corner, and first updates there: a graph replays from its third, and a fault that
# begins with the fifth shows. One on larger pictures is enough, since float64 is slow on many GPUs.
SIDES = {16: 6, 48: 1}
PRECISIONS = {torch.float64: FLOAT64, torch.float32: FLOAT32}  # the second only for a step that fails in the first

STEP_ERRORS = (LabkitError, RuntimeError, TypeError, *OUT_OF_MEMORY)

Maker = Callable[[], Step]


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

    def difference(self, maker: Maker, step: Step) -> tuple[str | None, str]:
        """How the step differs from the baseline, or None, and a note if a check could not run, or ""."""
        note = ""
        if all(base in SPEEDUPS.values() for base in declaring_16_bits(step)):  # autocast leaves float64 alone
            for dtype, allowed in PRECISIONS.items():
                try:
                    for small, updates in corners(self.batch, step, dtype):
                        if reason := self.in_first_updates(maker, step, small, updates, allowed):
                            return reason, note
                    break
                except STEP_ERRORS as error:
                    note = note or f"float64 could not be tried ({error})"
                if declaring_16_bits(step):
                    break
        try:
            reason = self.after_timing(step)
        except LabkitError as error:
            reason = str(error)
        except OUT_OF_MEMORY:
            return None, "the memory did not suffice for another look after the timing"
        return f"after the timing rounds, {reason}" if reason else None, note

    def in_first_updates(self, maker: Maker, step: Step, small: Pair, updates: int, allowed: Tolerances) -> str | None:
        """How new steps of both kinds differ in so many first updates, from full pools, on small pictures.

        The last update is at half the learning rate, as a schedule sets it.

        Raises:
            STEP_ERRORS: one of them fails.
        """
        dtype = small[0].dtype
        with computing_in(dtype):
            filling = new(self.maker, dtype)
            filling(*small)
            pools = {pool: full(state) for pool, state in filling.state_dict()["pools"].items()}
            baseline, mine = new(self.maker, dtype, pools), new(maker, dtype, pools, timed=step)
            weights = State.of(mine).weights
            for weight, right in State.of(baseline).weights.items():
                if not (weights[weight] - right).norm() <= FLOAT64.loss * right.norm():
                    return f"{weight} does not begin as the baseline's"
            for k in range(updates):
                if dtype != torch.float64:  # or rounding soon leads them to different weights
                    allowed = copy_state(baseline, mine, allowed)
                if k == updates - 1:
                    baseline.scale_lr(0.5)
                    mine.scale_lr(0.5)
                if reason := in_one_update(mine, baseline, small, k, allowed):
                    return f"in update {k + 1}, {reason}" if k else reason
        return None

    def after_timing(self, step: Step) -> str | None:
        """How a timed step's state, or one more update from it, differs from the baseline's after as many updates.

        Rounding alone soon leads to different weights, but counts, settings and pools have to agree exactly.
        """
        allowed, timed = timed_tolerances(step), State.of(step)
        if getattr(step, "scaler", None):  # it skips an update whose gradients overflow
            timed = timed._replace(counts=self.timed.counts)
        if reason := state_difference(timed, self.timed):
            return reason
        self.baseline.load_state_dict(copy.deepcopy(self.state))  # steps judged before have moved it on
        for k in (1, 2):
            allowed = copy_state(self.baseline, step, allowed)
            reason = in_one_update(step, self.baseline, self.batch, k, allowed)
            if reason is None or not declaring_16_bits(step):
                break  # in 16 bits, rounding may look like a fault once, but not twice
        return reason


def in_one_update(step: Step, baseline: Step, batch: Pair, k: int, allowed: Tolerances) -> str | None:
    """How an update of a step differs from the baseline's, or None. Both take it, from the same state.

    The pictures are shifted by 3 k pixels, so that a step which keeps those of an earlier call is noticed.

    Raises:
        LabkitError: one of them fails.
    """
    real_a, real_b = (pictures.roll(3 * k, -1).contiguous() for pictures in batch)
    batch, state = (real_a, real_b), copy.deepcopy(baseline.state_dict())
    right, mine = Update.of(baseline, batch), Update.of(step, batch)
    by_term = functools.cache(functools.partial(gradients_by_term, baseline, state, batch))
    return first_difference(mine, right, allowed, by_term)


def copy_state(baseline: Step, step: Step, allowed: Tolerances) -> Tolerances:
    """Gives the baseline the state of a step, without Adam's moments if the step's optimisers are of another kind.

    Returns:
        The tolerances. Displacements are not compared if the moments may differ.
    """
    state = copy.deepcopy(step.state_dict())
    kinds, expected = ([(type(one), len(one.state)) for one in own.optimizers.values()] for own in (step, baseline))
    if kinds != expected:
        state["optimizers"] = baseline.state_dict()["optimizers"]
        allowed = allowed._replace(displacement=NOT_COMPARED, distance=NOT_COMPARED)
    baseline.load_state_dict(state)
    return allowed


def timed_tolerances(step: Step) -> Tolerances:
    """The tolerances for a timed step: of 16 bits if it declares them, or draws random numbers in another order."""
    weight = next(step.model.parameters())
    if declaring_16_bits(step) or has_dropout(step.model):
        return BITS16
    if weight.dtype == torch.float64:
        return FLOAT64
    return TF32 if has_tf32(weight.device) and torch.backends.cudnn.allow_tf32 else FLOAT32


def declaring_16_bits(step: Step) -> list[type]:
    """The classes of the step, labkit's or the caller's, that say ``tolerance = "16-bit"``."""
    return [base for base in type(step).__mro__ if vars(base).get("tolerance") == "16-bit"]


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Inside, new tensors have this type, without TF32, and nothing is compiled, which would take long."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with flags("off"), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.set_default_dtype(before)


def new(maker: Maker, dtype: torch.dtype, pools: dict[str, Any] | None = None, timed: Step | None = None) -> Step:
    """A new step in this type, with these pools, and without dropout, which depends on the order of the passes.

    Raises:
        LabkitError: its model is that of the step that was `timed`, which would be converted.
    """
    torch.manual_seed(0)
    step = maker()
    if timed is not None and step.model is timed.model:
        raise LabkitError("the function that makes it gives one model each time")
    step.place = place_of(next(step.model.to(dtype).parameters()))  # it is new: nothing to move
    for layer in step.model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
    state = step.state_dict()  # loaded even without pools: an optimiser may have begun with a state
    step.load_state_dict(state | {"pools": pools or state["pools"]})
    return step


def corners(batch: Pair, step: Step, dtype: torch.dtype) -> Iterator[tuple[Pair, int]]:
    """Corners of the pictures of two sizes, or as small as the networks accept, and a number of updates for each."""
    model, given, before = step.model, min(batch[0].shape[-2:]), 0
    for side, updates in SIDES.items():
        side = min(given, -(-max(side, model.min_size) // model.size_multiple) * model.size_multiple)
        if side > before:
            real_a, real_b = (pictures[..., :side, :side].to(dtype).contiguous() for pictures in batch)
            yield (real_a, real_b), updates
        before = side


def full(pool: dict[str, Any]) -> dict[str, Any]:
    """The state of a full pool whose next draw gives back an earlier picture."""
    kept = pool["pictures"]
    if kept is None or not len(kept):
        return pool
    noise = torch.rand(kept.shape, generator=torch.Generator().manual_seed(0), dtype=kept.dtype) * 2 - 1
    draws = random.Random(0).getstate()  # its first number is above 1/2
    rest = {name: value for name, value in pool.items() if name != "ranks"}
    return {**rest, "filled": len(kept), "random": draws, "pictures": noise.to(kept.device)}


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
