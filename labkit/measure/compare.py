"""Several training steps side by side: how fast, how much memory, and whether they still compute the same."""

from __future__ import annotations

import copy
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from tqdm.auto import tqdm

from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.equivalence import Update
from labkit.measure.record import Batch
from labkit.measure.roofline import matmul_rate, step_flops
from labkit.measure.timing import alternate, interval, ratios, spread
from labkit.stamp import stamp
from labkit.step import Step
from labkit.variants.registry import make_step

if TYPE_CHECKING:
    import pandas

AGAIN = "{} again"  # the baseline a second time: what differs between these two is noise
SPEED = (
    "median_s",
    "spread",
    "times_faster",
    "times_faster_low",
    "times_faster_high",
    "images_per_s",
    "peak_bytes",
    "flop_per_s",
    "share_of_peak",
)


def compare(
    steps: Mapping[str, Callable[[], Step]],
    batch: Batch,
    rounds: int = 10,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> pandas.DataFrame:
    """Times steps in turn, in one process, and holds the first losses and gradients of each to those of the first.

    Args:
        steps: functions that make a step, by name; the first is the baseline. Each is called after the same seed, so
            that steps of the same networks begin with the same weights. No two may share a model.
        batch: (real_a, real_b), (B, 3, H, W) in [-1, 1], on the models' device.
        rounds: measurements of each; at least 6, or the intervals would mean nothing.
        warmup: rounds that do not count.
        clock: gives seconds; by default those on the wall.

    Returns:
        A row a step, and a second one of the baseline ("... again"), whose differences from the first are noise. The
        columns: verdict; why; median_s; spread, half the quartiles' distance over the median; times_faster than the
        baseline, with times_faster_low and _high, a 95% interval; images_per_s of either domain; peak_bytes while it
        runs, weights and optimiser included (NaN on a CPU, where PyTorch does not count); flop_per_s; share_of_peak,
        that over the device's measured rate in float32 matrix products; loss_difference, the largest relative one of
        the first step; gradient_cosine, the smallest of any player's. ``attrs["stamp"]`` says on what it was measured,
        ``attrs["seconds"]`` holds every measurement.

        verdict is "baseline", "noise" (the second baseline), "faster", "slower", "no difference", "not equivalent",
        "another model", "inactive", "does not run" or "out of memory". Where nothing was measured the numbers are NaN,
        never 1.00. "Not equivalent" is a step that leaves out or adds a loss; whose first losses or gradients, or whose
        losses and weights after three updates, differ by more than 16 bits explain; or that later no longer learns.

    Raises:
        LabkitError: an argument cannot be used, or the baseline does not run.
    """
    _check(steps, batch, rounds)
    with torch.random.fork_rng([batch[0].device] if batch[0].is_cuda else []):
        return _compare(steps, batch, rounds, warmup, clock)


def _compare(
    steps: Mapping[str, Callable[[], Step]], batch: Batch, rounds: int, warmup: int, clock: Callable[[], float]
) -> pandas.DataFrame:
    import pandas

    baseline = next(iter(steps))
    again = AGAIN.format(baseline)
    makers = {baseline: steps[baseline], again: steps[baseline], **steps}
    made = {name: _Made(name, maker, batch) for name, maker in tqdm(makers.items(), "first steps", delay=5)}
    first = made[baseline]
    if first.verdict:
        raise LabkitError(f"{baseline}, the baseline, does not run: {first.why}.")
    if bad := [name for name, loss in first.update.losses.items() if not math.isfinite(loss)]:
        raise LabkitError(f"{baseline}, the baseline: {', '.join(bad)} is not a finite number. Is the batch?")
    if len({id(one.step.model) for one in made.values()}) < len(made):
        raise LabkitError("two steps share one model: let each function make a model of its own.")
    running = {name: one.run for name, one in made.items() if not one.verdict}
    try:
        seconds = _timed(running, rounds, warmup, clock)
    except OUT_OF_MEMORY as error:
        raise LabkitError(
            f"out of memory with {len(running)} steps at once, each with weights and optimiser of its own: compare "
            "fewer at a time, or smaller batches."
        ) from error
    peak = matmul_rate(batch[0].device)
    noise = interval(ratios(seconds[baseline], seconds[again]))
    rows = {}
    for name, one in made.items():
        row = _speed(one, seconds.get(name), seconds[baseline], len(batch[0]), peak)
        if name == baseline:
            verdict, why = "baseline", "what the others are compared with"
        elif name == again:
            verdict, why = "noise", f"the baseline against itself: between {noise[0]:.3f} and {noise[1]:.3f}"
        else:
            verdict, why = _verdict(one, first, row, noise)
        rows[name] = {"verdict": verdict, "why": why, **row, **_distance(one, first)}
    table = pandas.DataFrame.from_dict(rows, orient="index")
    model = {"model": type(first.step.model).__name__, **first.step.model.settings}
    measured = {"batch_shape": list(batch[0].shape), "rounds": rounds, "peak_flop_per_s": peak, **model}
    table.attrs = {"stamp": stamp() | measured, "seconds": seconds}
    return table


def _timed(
    running: Mapping[str, Callable], rounds: int, warmup: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """`labkit.measure.timing.alternate`, with a bar that shows how far it is."""
    with tqdm(desc="rounds", total=len(running) * (rounds + warmup), delay=5) as bar:

        def counted(run: Callable) -> Callable[[], None]:
            def counting() -> None:
                run()
                bar.update()

            return counting

        return alternate({name: counted(run) for name, run in running.items()}, rounds, warmup, clock=clock)


def _check(steps: Mapping[str, Callable[[], Step]], batch: Batch, rounds: int) -> None:
    if not isinstance(steps, Mapping) or not steps:
        raise LabkitError("give steps by name, a baseline at least: {'baseline': lambda: labkit.make_step(model())}.")
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise LabkitError("batch: give two tensors, (real_a, real_b).")
    if not isinstance(rounds, int) or rounds < 6:
        raise LabkitError(f"rounds={rounds!r}: of fewer than 6 no interval of 95% can be given. Use at least 6.")
    again = AGAIN.format(next(iter(steps)))
    if again in steps:
        raise LabkitError(f"steps[{again!r}]: so the baseline's second row is called. Give the step another name.")
    for name, maker in steps.items():
        if not name or isinstance(maker, Step) or not callable(maker):
            raise LabkitError(
                f"steps[{name!r}] is {type(maker).__name__}: give it a name, and a function that makes the step and "
                "its model, as lambda: labkit.make_step(labkit.CycleGAN(), 'bf16'), so that each has its own weights."
            )


class _Made:
    """A step that was made and run once: its first update and its memory, or why it does not run."""

    def __init__(self, name: str, maker: Callable[[], Step], batch: Batch) -> None:
        held = torch.cuda.memory_allocated() if batch[0].is_cuda else 0
        torch.manual_seed(0)
        self.step = maker()
        if not isinstance(self.step, Step):
            raise LabkitError(f"steps[{name!r}] makes a {type(self.step).__name__}: it should return a step.")
        self.run = functools.partial(self.step, *batch)
        self.update: Update | None = None
        self.peak_bytes, self.flops, self.verdict = math.nan, math.nan, ""
        if reason := inactive(self.step):
            self.verdict, self.why = "inactive", reason
            return
        try:
            self.flops = step_flops(make_step(copy.deepcopy(self.step.model)), batch)
            self.update = Update(self.step, batch, name)
            if batch[0].is_cuda:
                self.peak_bytes = self.update.peak_bytes - held
        except OUT_OF_MEMORY as error:
            self.verdict, self.why = "out of memory", str(error).partition(". ")[0]
        except LabkitError as error:
            self.verdict, self.why = "does not run", str(error)
        if self.verdict == "out of memory":  # out of the handler, which would keep the memory that ran out
            torch.cuda.empty_cache()
            self.why += f"; {what_fits(maker, batch)}"


def what_fits(maker: Callable[[], Step], batch: Batch) -> str:
    """Halves a batch that does not fit until it does, and says so in words."""
    images = len(batch[0]) // 2
    while images:
        try:
            maker()(*(pictures[:images] for pictures in batch))
            return f"a batch of {images} fits"
        except OUT_OF_MEMORY:
            images //= 2
        torch.cuda.empty_cache()
    return "not even one picture fits"


def inactive(step: Step) -> str | None:
    """Which of a step's speed-ups do nothing on its model's device, and why; None if all act."""
    named = [speedup for speedup in type(step).__mro__ if "name" in vars(speedup)]
    reasons = [f"{speedup.name}: {reason}" for speedup in named if (reason := speedup.inactive(step.model))]
    return "; ".join(reasons) or None


def _speed(one: _Made, seconds: list[float] | None, baseline: list[float], images: int, peak: float) -> dict:
    """The numbers of a row; NaN where the step did not run."""
    if seconds is None:
        return dict.fromkeys(SPEED, math.nan)
    median, faster = statistics.median(seconds), ratios(baseline, seconds)
    values = (median, spread(seconds), statistics.median(faster), *interval(faster), images / median, one.peak_bytes)
    return dict(zip(SPEED, (*values, one.flops / median, one.flops / median / peak), strict=True))


def _verdict(one: _Made, baseline: _Made, row: Mapping, noise: tuple[float, float]) -> tuple[str, str]:
    """The verdict on a step that is not the baseline, and why."""
    if one.verdict:
        return one.verdict, one.why
    between = (row["times_faster_low"], row["times_faster_high"])
    if one.update.networks != baseline.update.networks:
        return "another model", _measured(row["times_faster"], between)
    if reason := one.update.difference(baseline.update) or one.update.later(baseline.update):
        return "not equivalent", reason
    return speed_verdict(row["times_faster"], between, noise)


def _distance(one: _Made, baseline: _Made) -> dict[str, float]:
    """How far first losses and gradients are from the baseline's; NaN for another model, or one that did not run."""
    if one.update is None or one.update.networks != baseline.update.networks:
        return {"loss_difference": math.nan, "gradient_cosine": math.nan}
    return one.update.distance(baseline.update)


def speed_verdict(times: float, between: tuple[float, float], noise: tuple[float, float]) -> tuple[str, str]:
    """Whether a step that is `times` faster, `between` these, differs by more than the baseline does from itself."""
    if between[0] > max(1.0, noise[1]):
        return "faster", _measured(times, between)
    if between[1] < min(1.0, noise[0]):
        return "slower", _measured(times, between)
    against = f"the baseline against itself: between {noise[0]:.3f} and {noise[1]:.3f}"
    return "no difference", f"{_measured(times, between)}; {against}"


def _measured(times: float, between: tuple[float, float]) -> str:
    return f"{times:.3f} times faster, between {between[0]:.3f} and {between[1]:.3f}"
