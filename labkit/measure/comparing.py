"""Several training steps side by side: how fast, how much memory, and whether they still compute the same."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure.recording import Batch
from labkit.measure.roofline import matmul_rate, step_flops
from labkit.measure.timing import alternate, interval, peak_memory, ratios, spread
from labkit.stamp import stamp
from labkit.steps.making import make_step
from labkit.steps.step import Step

if TYPE_CHECKING:
    import pandas

AGAIN = "{} again"  # the baseline a second time: what differs between these two is noise
SIXTEEN_BIT, LEAST_COSINE = 1e-2, 0.9  # how far losses, relative, and gradients of a step in 16 bits may be
OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
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
        "another model", "inactive" or "out of memory". Where nothing was measured the numbers are NaN, never 1.00.

    Raises:
        LabkitError: there is nothing to compare, or a step cannot be made or run.
    """
    _check(steps, rounds)
    with torch.random.fork_rng([batch[0].device] if batch[0].is_cuda else []):
        return _compare(steps, batch, rounds, warmup, clock)


def _compare(
    steps: Mapping[str, Callable[[], Step]], batch: Batch, rounds: int, warmup: int, clock: Callable[[], float]
) -> pandas.DataFrame:
    import pandas

    baseline = next(iter(steps))
    makers = {baseline: steps[baseline], AGAIN.format(baseline): steps[baseline], **steps}
    made = {name: _Made(name, maker, batch) for name, maker in makers.items()}
    running = {name: one.run for name, one in made.items() if not one.verdict}
    if baseline not in running:
        raise LabkitError(f"{baseline}, the baseline, does not run: {made[baseline].why}.")
    seconds = alternate(running, rounds, warmup, clock=clock)
    peak = matmul_rate(batch[0].device)
    noise = interval(ratios(seconds[baseline], seconds[AGAIN.format(baseline)]))
    rows = {}
    for name, one in made.items():
        row = _speed(one, seconds.get(name), seconds[baseline], len(batch[0]), peak)
        sameness = _sameness(one, made[baseline])
        verdict, why = _verdict(name, one, made[baseline], row, sameness, noise)
        rows[name] = {"verdict": verdict, "why": why, **row, **sameness}
    table = pandas.DataFrame.from_dict(rows, orient="index")
    measured = {"batch_shape": list(batch[0].shape), "rounds": rounds, "peak_flop_per_s": peak}
    table.attrs = {"stamp": stamp() | measured, "seconds": seconds}
    return table


def _check(steps: Mapping[str, Callable[[], Step]], rounds: int) -> None:
    if not steps:
        raise LabkitError("steps={}: give at least a baseline, as {'baseline': lambda: labkit.make_step(model())}.")
    if rounds < 6:
        raise LabkitError(f"rounds={rounds}: of fewer than 6 no interval of 95% can be given. Use at least 6.")
    for name, maker in steps.items():
        if isinstance(maker, Step) or not callable(maker):
            raise LabkitError(
                f"steps[{name!r}] is {type(maker).__name__}: give a function that makes the step and its model, as "
                "lambda: labkit.make_step(labkit.CycleGAN(), 'bf16'), so that each has weights of its own."
            )


class _Made:
    """A step that was made and run once: its first losses and gradients, its memory, or why it does not run."""

    def __init__(self, name: str, maker: Callable[[], Step], batch: Batch) -> None:
        held = torch.cuda.memory_allocated() if batch[0].is_cuda else 0
        torch.manual_seed(0)
        step = maker()
        if not isinstance(step, Step):
            raise LabkitError(f"steps[{name!r}] makes a {type(step).__name__}: it should return a step.")
        self.run = lambda: step(*batch)
        self.networks = {name: weight.shape for name, weight in step.model.state_dict().items()}
        self.losses: dict[str, float] = {}
        self.gradients: dict[str, Tensor] = {}
        self.peak_bytes, self.flops, self.verdict = math.nan, math.nan, ""
        if reason := inactive(step):
            self.verdict, self.why = "inactive", reason
            return
        try:
            self.flops = step_flops(make_step(copy.deepcopy(step.model)), batch)
            with first_gradients(step, self.gradients):
                self.losses = {name: loss.item() for name, loss in self.run().items()}
            if (peak := peak_memory(self.run)) is not None:
                self.peak_bytes = peak - held
        except OUT_OF_MEMORY as error:
            self.verdict, self.why = "out of memory", str(error).partition(". ")[0]
        if self.verdict:  # out of the handler, which would keep the memory that ran out
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


@contextmanager
def first_gradients(step: Step, gradients: dict[str, Tensor]) -> Iterator[None]:
    """Inside, keeps each player's gradient as one vector the moment its optimiser steps, whatever the step's class."""

    def keep(player: str) -> Callable:
        def hook(*_: object) -> None:
            weights = step.players[player]
            gradients[player] = torch.cat([weight.grad.detach().double().flatten() for weight in weights])

        return hook

    hooks = [optimizer.register_step_pre_hook(keep(player)) for player, optimizer in step.optimizers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _speed(one: _Made, seconds: list[float] | None, baseline: list[float], images: int, peak: float) -> dict:
    """The numbers of a row; NaN where the step did not run."""
    if seconds is None:
        return dict.fromkeys(SPEED, math.nan)
    median, faster = statistics.median(seconds), ratios(baseline, seconds)
    values = (median, spread(seconds), statistics.median(faster), *interval(faster), images / median, one.peak_bytes)
    return dict(zip(SPEED, (*values, one.flops / median, one.flops / median / peak), strict=True))


def _sameness(one: _Made, baseline: _Made) -> dict[str, float]:
    """How far the first losses and gradients are from the baseline's; NaN for another model."""
    if not one.losses or one.networks != baseline.networks:
        return {"loss_difference": math.nan, "gradient_cosine": math.nan}
    shared = baseline.losses.keys() & one.losses.keys()
    differences = [relative_difference(one.losses[name], baseline.losses[name]) for name in shared]
    cosines = [
        torch.cosine_similarity(one.gradients[player], gradient, dim=0).item()
        for player, gradient in baseline.gradients.items()
        if player in one.gradients
    ]
    return {"loss_difference": max(differences, default=math.nan), "gradient_cosine": min(cosines, default=math.nan)}


def relative_difference(value: float, right: float) -> float:
    """How far `value` is from `right`, as a share of it; 0 if both are 0, as a deviation loss is at first."""
    if value == right:
        return 0.0
    return abs(value / right - 1) if right else math.inf


def _difference(one: _Made, baseline: _Made, sameness: Mapping[str, float]) -> str | None:
    """In what a step is not the baseline's equal, None if it is."""
    if missing := [name for name in baseline.losses if name not in one.losses]:
        return f"it leaves out {', '.join(missing)}"
    if idle := [player for player in baseline.gradients if player not in one.gradients]:
        return f"the {', '.join(idle)} do not learn"
    if not sameness["loss_difference"] <= SIXTEEN_BIT:
        worst = max(baseline.losses, key=lambda name: relative_difference(one.losses[name], baseline.losses[name]))
        return f"{worst} is {one.losses[worst]:.4g}, the baseline's {baseline.losses[worst]:.4g}"
    if not sameness["gradient_cosine"] >= LEAST_COSINE:
        return f"gradients point elsewhere (cosine {sameness['gradient_cosine']:.2f})"
    return None


def _verdict(name: str, one: _Made, baseline: _Made, row: Mapping, sameness: Mapping, noise: tuple) -> tuple[str, str]:
    """The verdict on a step, and why."""
    if one.verdict:
        return one.verdict, one.why
    if one is baseline:
        return "baseline", "what the others are compared with"
    low, high = row["times_faster_low"], row["times_faster_high"]
    if one.networks != baseline.networks:
        return "another model", _measured(row["times_faster"], (low, high))
    if reason := _difference(one, baseline, sameness):
        return "not equivalent", reason
    if name.endswith(AGAIN.format("")):
        return "noise", f"the baseline against itself: between {low:.3f} and {high:.3f}"
    return speed_verdict(row["times_faster"], (low, high), noise)


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
