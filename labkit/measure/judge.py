"""When a step is judged: in its first updates in float64, and in one more update after it has been timed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from labkit.devices import OUT_OF_MEMORY
from labkit.measure.record import Pair
from labkit.measure.same import ANYTHING, BITS16, FLOAT32, FLOAT64, TF32, Tolerances, other_state, same
from labkit.measure.timing import flags, has_tf32
from labkit.measure.updates import State
from labkit.models.step import Step, place_of
from labkit.variants import has_dropout
from labkit.variants.registry import SPEEDUPS
from labtrace.errors import LabkitError

UPDATES = 6  # a graph replays in its third; a fault that begins with the fifth shows
SIDE = 16  # pixels, at least: float64 is slow on many GPUs, and the same operators run on any size
FAILURES = (LabkitError, RuntimeError, TypeError, *OUT_OF_MEMORY)

Maker = Callable[[], Step]


class Judge:
    """Compares steps that have been timed with the baseline.

    Args:
        maker: makes the baseline.
        baseline: a step of it that has been timed. Its state changes here.
        batch: (real_a, real_b), as in the timing.
    """

    def __init__(self, maker: Maker, baseline: Step, batch: Pair) -> None:
        self.maker, self.baseline, self.batch = maker, baseline, batch
        self.timed = State.of(baseline)

    def difference(self, maker: Maker, step: Step) -> tuple[str | None, str]:
        """What the step computes otherwise than the baseline (or None), and which look could not be taken (or "")."""
        reason, note = None, ""
        if all(base in SPEEDUPS.values() for base in declaring_16_bits(step)):  # autocast leaves float64 alone
            for dtype, allowed in ((torch.float64, FLOAT64), (torch.float32, FLOAT32)):
                try:
                    reason = self.first_updates(maker, step, dtype, allowed)
                    break
                except FAILURES as error:
                    note = note or f"float64 could not be tried ({error})"
                if declaring_16_bits(step):
                    break
        try:
            after = None if reason else self.after_timing(step)
        except LabkitError as error:
            after = str(error)
        except OUT_OF_MEMORY:
            after, note = None, "the memory did not suffice for another look after the timing"
        return reason or (f"after the timing rounds, {after}" if after else None), note

    def first_updates(self, maker: Maker, step: Step, dtype: torch.dtype, allowed: Tolerances) -> str | None:
        """How new steps of both kinds differ in their first updates, from full pools, on small pictures.

        The last update is at half the learning rate, as a schedule sets it.

        Raises:
            FAILURES: one of them fails.
        """
        with computing_in(dtype):
            small = cropped(self.batch, step, dtype)
            full_pools = new(self.maker, dtype)
            full_pools(*small)
            pools = {pool: full(state) for pool, state in full_pools.state_dict()["pools"].items()}
            baseline, mine = new(self.maker, dtype, pools), new(maker, dtype, pools, timed=step)
            weights = State.of(mine).weights
            for weight, right in State.of(baseline).weights.items():
                if not (weights[weight] - right).norm() <= FLOAT64.loss * right.norm():
                    return f"{weight} does not begin as the baseline's"
            for k in range(UPDATES):
                if dtype != torch.float64:  # or rounding soon sends them different ways
                    allowed = follow(baseline, mine, allowed)
                for one in (baseline, mine) if k == UPDATES - 1 else ():
                    one.scale_lr(0.5)
                if reason := same(mine, baseline, moved(small, k), allowed):
                    return f"in update {k + 1}, {reason}" if k else reason
        return None

    def after_timing(self, step: Step) -> str | None:
        """How the state of a timed step differs from the baseline's after as many updates, or one more update from it.

        Rounding alone soon sends the weights on other ways, but whatever is counted has to agree exactly.
        """
        allowed, timed = timed_tolerances(step), State.of(step)
        if getattr(step, "scaler", None):  # it may leave out an update, whose gradients overflowed
            timed = timed._replace(counts=self.timed.counts)
        if reason := other_state(timed, self.timed):
            return reason
        for k in (1, 2):
            allowed = follow(self.baseline, step, allowed)
            reason = same(step, self.baseline, moved(self.batch, k), allowed)
            if reason is None or not declaring_16_bits(step):
                break  # in 16 bits, rounding may look like a fault once
        return reason


def follow(baseline: Step, step: Step, allowed: Tolerances) -> Tolerances:
    """Gives the baseline the state of a step, without the moments if the step has optimisers of its own.

    Returns:
        The tolerances, without those of the weights' ways if the moments may differ.
    """
    state = copy.deepcopy(step.state_dict())
    kinds, expected = ([(type(one), len(one.state)) for one in own.optimizers.values()] for own in (step, baseline))
    if kinds != expected:
        state["optimizers"] = baseline.state_dict()["optimizers"]
        allowed = allowed._replace(way=ANYTHING, length=ANYTHING)
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
    """The classes of the step, labkit's or one's own, that say ``tolerance = "16-bit"``."""
    return [base for base in type(step).__mro__ if vars(base).get("tolerance") == "16-bit"]


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Inside, new tensors have this type, without TF32, and nothing is compiled: that takes long."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with flags("off"), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.set_default_dtype(before)


def new(maker: Maker, dtype: torch.dtype, pools: dict[str, Any] | None = None, timed: Step | None = None) -> Step:
    """A new step in this type, with these pools, and without dropout, which another order of passes draws otherwise.

    Raises:
        LabkitError: it has the model of the step that was `timed`, which would be converted.
    """
    torch.manual_seed(0)
    step = maker()
    if timed is not None and step.model is timed.model:
        raise LabkitError("the function that makes it gives one model each time")
    step.place = place_of(next(step.model.to(dtype).parameters()))  # it is new: nothing to move
    for layer in step.model.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
    state = step.state_dict()  # loaded even without pools, for what an optimiser may have begun with
    step.load_state_dict(state | {"pools": pools or state["pools"]})
    return step


def cropped(batch: Pair, step: Step, dtype: torch.dtype) -> Pair:
    """A corner of the pictures, as small as the networks take it."""
    model = step.model
    side = -(-max(SIDE, model.min_size) // model.size_multiple) * model.size_multiple
    real_a, real_b = (pictures[..., :side, :side].to(dtype).contiguous() for pictures in batch)
    return real_a, real_b


def moved(batch: Pair, k: int) -> Pair:
    """Other pictures for every k: a step that keeps those of an earlier call is found out."""
    real_a, real_b = (pictures.roll(3 * k, -1).contiguous() for pictures in batch)
    return real_a, real_b


def full(pool: dict[str, Any]) -> dict[str, Any]:
    """The state of a pool that is full, and gives back an earlier picture first."""
    kept = pool["pictures"]
    if kept is None or not len(kept):
        return pool
    noise = torch.rand(kept.shape, generator=torch.Generator().manual_seed(0), dtype=kept.dtype) * 2 - 1
    draws = random.Random(0).getstate()  # its first number is above 1/2
    rest = {name: value for name, value in pool.items() if name != "ranks"}
    return {**rest, "filled": len(kept), "random": draws, "pictures": noise.to(kept.device)}
