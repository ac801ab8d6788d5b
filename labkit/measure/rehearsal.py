"""A step looked at more closely than its timed runs allow: in float64, and from the state that timing left it in."""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.differences import IN_16_BITS, IN_FLOAT32, IN_FLOAT64, Limits, difference, state_difference
from labkit.measure.record import Batch
from labkit.measure.updates import State, Terms, Update, terms_of, update
from labkit.models.model import Model
from labkit.models.step import Step, place_of
from labkit.variants import has_dropout
from labkit.variants.registry import SPEEDUPS

UPDATES = 3  # a graph replays in its third; what a step does only every second or third time shows
SIDE = 16  # pixels, at least: float64 is slow on many GPUs, and the same operators run on any size


FAILURES = (LabkitError, RuntimeError, TypeError, *OUT_OF_MEMORY)


class NotInFloat64(LabkitError):
    """A step cannot be looked at in float64."""


class Rehearsal:
    """The first updates of a new step in float64, from full pools, on small pictures that differ from time to time.

    Args:
        maker: makes the step and its model.
        timed: the model that the maker made before, which has to stay as it is.
        batch: (real_a, real_b), as for the step itself.
        name: of the step, for messages.
        pools: the full pools to begin with, from the baseline's rehearsal; None makes them.

    Raises:
        NotInFloat64: the device has none, the maker makes no model of its own for it, or the step fails.
    """

    def __init__(
        self, maker: Callable[[], Step], timed: Model, batch: Batch, name: str, pools: dict[str, Any] | None = None
    ) -> None:
        if batch[0].device.type not in ("cpu", "cuda"):
            raise NotInFloat64(f"{batch[0].device} has no float64")
        self.name = name
        try:
            with in_float64():
                torch.manual_seed(0)
                self.step = maker()
                if self.step.model is timed:
                    raise NotInFloat64("the maker gives one model each time, which would be turned into float64")
                self.step.place = place_of(next(self.step.model.double().parameters()))  # it is new: nothing to move
                self.step.load_state_dict(self.step.state_dict())  # but what an optimiser may have begun with
                for layer in self.step.model.modules():
                    if isinstance(layer, nn.modules.dropout._DropoutNd):
                        layer.p = 0.0  # or every other order of the passes would draw other random numbers
                small = cropped(batch, self.step)
                begin = copy.deepcopy(self.step.state_dict())
                if pools is None:
                    self.step(*small)
                    pools = {pool: full(state) for pool, state in self.step.state_dict()["pools"].items()}
        except FAILURES as error:
            raise NotInFloat64(str(error)) from error
        self.pools = pools
        self.begin = begin | {"pools": pools}
        self.batches = [flipped(small, k) for k in range(UPDATES)]

    def updates(self) -> Iterator[Update]:
        """One update after the other. Each holds weights and moments twice: keep no more of them than you need.

        Raises:
            NotInFloat64: one fails.
        """
        state = None
        self.step.load_state_dict(copy.deepcopy(self.begin))
        for pictures in self.batches:
            try:
                with in_float64():
                    done = update(self.step, pictures, self.name, state)
            except FAILURES as error:
                raise NotInFloat64(str(error)) from error
            state = done.after
            yield done

    @functools.cached_property
    def kept(self) -> list[Update]:
        """All updates, for a baseline that several steps are held to."""
        return list(self.updates())

    def difference(self, baseline: Rehearsal) -> str | None:
        """The first part of an update that is not the baseline's, and in which update; None if all agree."""
        for k, (mine, right) in enumerate(zip(self.updates(), baseline.kept, strict=True)):
            if k == 0 and (reason := other_start(mine, right)):
                return reason
            terms = functools.cache(functools.partial(baseline.terms, k))
            if reason := difference(mine, right, IN_FLOAT64, terms if ranks.count() == 1 else dict):
                return f"in update {k + 1}, {reason}" if k else reason
        return None

    def terms(self, k: int) -> Terms:
        """The gradient of each loss term in update `k`, from 0 on. The updates before it are run once more."""
        self.step.load_state_dict(copy.deepcopy(self.begin))
        for _ in itertools.islice(self.updates(), k):
            pass
        return terms_of(self.step, self.step.state_dict(), self.batches[k])


def other_start(mine: Update, right: Update) -> str | None:
    """Weights that the step does not begin with as the baseline does."""
    for name, weight in right.before.weights.items():
        if not (mine.before.weights[name].double() - weight.double()).norm() <= IN_FLOAT64.losses * weight.norm():
            return f"{name} does not begin as the baseline's"
    return None


def live_difference(step: Step, baseline: Step, batch: Batch, name: str) -> str | None:
    """What a step that has been timed computes otherwise than the baseline does from the same state; None if nothing.

    Changes both steps.
    """
    limits, reason = live_limits(step), None
    for k in range(1, 3):
        pictures = flipped(batch, k)
        state = copy.deepcopy(step.state_dict())
        baseline.load_state_dict(copy.deepcopy(state))
        right, mine = update(baseline, pictures, "baseline"), update(step, pictures, name)
        terms = functools.cache(functools.partial(terms_of, baseline, state, pictures))
        reason = difference(mine, right, limits, terms if ranks.count() == 1 else dict)
        if reason is None or limits != IN_16_BITS:
            break  # in 16 bits, rounding may look like a fault once
    return reason


class Judge:
    """Holds steps that have been timed to the baseline.

    Args:
        maker: makes the baseline.
        baseline: a step of it that has been timed; its state changes here.
        start: the weights that it began with.
        batch: (real_a, real_b), as in the timing.
    """

    def __init__(self, maker: Callable[[], Step], baseline: Step, start: dict[str, Tensor], batch: Batch) -> None:
        self.maker, self.baseline, self.start, self.batch = maker, baseline, start, batch

    @functools.cached_property
    def state(self) -> State:
        """The baseline's state after the timing."""
        return State.of(self.baseline)

    @functools.cached_property
    def right(self) -> Rehearsal | None:
        """The baseline in float64, made only if there is a step to hold to it; None if it cannot be."""
        try:
            rehearsal = Rehearsal(self.maker, self.baseline.model, self.batch, "baseline")
            return rehearsal if rehearsal.kept else None
        except NotInFloat64:
            return None

    def difference(self, maker: Callable[[], Step], step: Step, name: str) -> str | None:
        """What the step computes otherwise than the baseline, or None: first in float64, then as it was timed.

        A step that fails in float64, or on a device without it, is held to the limits of its own type only.
        """
        if self.right and exact_in_float64(step):
            with suppress(NotInFloat64):
                mine = Rehearsal(maker, step.model, self.batch, name, self.right.pools)
                if reason := mine.difference(self.right):
                    return reason
        right, timed = self.state, State.of(step)
        if getattr(step, "scaler", None):  # it may leave out an update, whose gradients overflowed
            timed = timed._replace(counts=right.counts)
        try:
            reason = state_difference(timed, right, self.start, live_limits(step))
            reason = reason or live_difference(step, self.baseline, self.batch, name)
        except LabkitError as error:
            reason = str(error)
        return f"after the timing rounds, {reason}" if reason else None


def live_limits(step: Step) -> Limits:
    """Those of 16 bits for a step that declares them, or draws random numbers in an order of its own."""
    if declares_16_bits(step) or has_dropout(step.model):
        return IN_16_BITS
    return IN_FLOAT64 if next(step.model.parameters()).dtype == torch.float64 else IN_FLOAT32


def declares_16_bits(step: Step) -> bool:
    """Whether a class of the step, labkit's or one's own, says ``tolerance = "16-bit"``."""
    return any(vars(base).get("tolerance") == "16-bit" for base in type(step).__mro__)


def exact_in_float64(step: Step) -> bool:
    """Whether a step has to agree to the last digits in float64.

    labkit's own 16-bit speed-ups have to: they use autocast, which leaves float64 alone.
    """
    declaring = [base for base in type(step).__mro__ if vars(base).get("tolerance") == "16-bit"]
    return all(base in SPEEDUPS.values() for base in declaring)


@contextmanager
def in_float64() -> Iterator[None]:
    """Inside, new tensors are float64, and compiled networks run as they were traced: to compile them takes long."""
    compiles, before = SPEEDUPS["compile"], torch.get_default_dtype()
    backend = compiles.backend  # type: ignore[attr-defined]
    torch.set_default_dtype(torch.float64)
    compiles.backend = "aot_eager"  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        compiles.backend = backend  # type: ignore[attr-defined]


def cropped(batch: Batch, step: Step) -> Batch:
    """A corner of the pictures, as small as the networks take it, in float64."""
    model = step.model
    least = -(-max(SIDE, model.min_size) // model.size_multiple) * model.size_multiple
    real_a, real_b = (pictures[..., :least, :least].double().contiguous() for pictures in batch)
    return real_a, real_b


def flipped(batch: Batch, k: int) -> Batch:
    """Other pictures for every k from 0 to 3: a step that keeps those of an earlier call is found out."""
    sides = [side for side, flips in ((3, k & 1), (2, k & 2)) if flips]
    real_a, real_b = (pictures.flip(sides).contiguous() if sides else pictures for pictures in batch)
    return real_a, real_b


def full(pool: dict[str, Any]) -> dict[str, Any]:
    """The state of a pool that is full, and gives back an earlier picture first."""
    kept = pool["pictures"]
    if kept is None or not len(kept):
        return pool
    noise = torch.rand(kept.shape, generator=torch.Generator().manual_seed(0), dtype=kept.dtype) * 2 - 1
    draws: Tensor | Any = random.Random(0).getstate()  # its first number is above 1/2
    rest = {name: value for name, value in pool.items() if name != "ranks"}
    return {**rest, "filled": len(kept), "random": draws, "pictures": noise.to(kept.device)}
