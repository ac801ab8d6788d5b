"""Several training steps side by side: speed, memory, and whether they still compute the same."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from tqdm.auto import tqdm

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, cudnn_benchmark
from labkit.errors import LabkitError
from labkit.measure.equivalence import FirstUpdates, NeverLearns, other_names
from labkit.measure.record import Batch
from labkit.measure.rehearsal import Judge
from labkit.measure.roofline import matmul_rate
from labkit.measure.timing import alternate, interval, ratios, spread
from labkit.models.step import Step
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS

if TYPE_CHECKING:
    import pandas

AGAIN = "{} again"  # the baseline a second time: the difference between the two is noise


def compare(
    steps: Mapping[str, Callable[[], Step]],
    batch: Batch,
    rounds: int = 10,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> pandas.DataFrame:
    """Times steps in turn, in one process, and compares the losses and gradients of each with the first one's.

    cuDNN's benchmark mode is on meanwhile, as in `labkit.fit`.

    Args:
        steps: functions that make a step, by name; the first is the baseline. Each is called after the same seed, so
            that steps of the same networks begin with the same weights. No two may share a model.
        batch: (real_a, real_b), (B, 3, H, W) in [-1, 1], on the models' device; this rank's part, if there are several.
        rounds: measurements of each step; at least 6, or there is no 95% interval.
        warmup: rounds that do not count.
        clock: gives seconds; by default wall time.

    Returns:
        One row a step, and a second row of the baseline ("... again"), whose difference from the first is noise. The
        columns: verdict; why; median_s; spread, half the interquartile range over the median; times_faster than the
        baseline, with times_faster_low and _high, a 95% interval; images_per_s of either domain, of all ranks;
        peak_bytes while it runs, weights and optimiser included (NaN on a CPU, where PyTorch does not count);
        flop_per_s; share_of_peak, which is flop_per_s over the device's measured rate of float32 matrix products;
        loss_difference, the largest relative one of the first step; gradient_cosine, the smallest of any player.
        ``attrs["stamp"]`` says on which machine and with which settings it was measured, ``attrs["seconds"]`` holds
        every measurement.

        verdict is "baseline", "noise" (the second baseline), "faster", "slower", "no difference", "not equivalent",
        "another model", "inactive", "does not run" or "out of memory". Where nothing was measured the numbers are NaN,
        never 1.00. A step is "not equivalent" if it computes something else than the baseline. Three looks decide, and
        `why` names the loss term, network, layer or pool that differs:

        - Three updates in float64, from full pools, on small pictures: losses, the gradient of each term, weights,
          pools and Adam's moments have to agree to 1e-6. A step rounds more only if one of its own classes says
          ``tolerance = "16-bit"``.
        - The first three updates as they are timed: losses and gradients within 16-bit rounding.
        - After the timing: counts of updates, learning rates and pools have to agree, and one more update from the
          same state, within 1e-2 for losses and 5e-2 for each term, or within 16-bit rounding.

        So what a step does only every fourth time or more seldom may go unseen, unless it changes a count or a pool.

    Raises:
        LabkitError: an argument cannot be used, or the baseline does not run.
    """
    _check(steps, batch, rounds)
    with torch.random.fork_rng([batch[0].device] if batch[0].is_cuda else []):
        return _compare(steps, batch, rounds, warmup, clock)


@cudnn_benchmark()
def _compare(
    steps: Mapping[str, Callable[[], Step]], batch: Batch, rounds: int, warmup: int, clock: Callable[[], float]
) -> pandas.DataFrame:
    import pandas

    baseline = next(iter(steps))
    again = AGAIN.format(baseline)
    makers = {baseline: steps[baseline], again: steps[baseline], **steps}
    tried = {name: _tried(name, maker, batch) for name, maker in tqdm(makers.items(), "first steps", delay=5)}
    running = {name: updates for name, updates in tried.items() if isinstance(updates, FirstUpdates)}
    failed = {name: reason for name, reason in tried.items() if not isinstance(reason, FirstUpdates)}
    for name in (baseline, again):
        if name in failed:
            raise LabkitError(f"{name}, the baseline, does not run: {failed[name][1]}.")
    first = running[baseline]
    if bad := [name for name, loss in first.first.losses.items() if not math.isfinite(loss)]:
        raise LabkitError(f"{baseline}, the baseline: {', '.join(bad)} is not a finite number. Is the batch finite?")
    if len({id(updates.step.model) for updates in running.values()}) < len(running):
        raise LabkitError("two steps share one model: let each function make a model of its own.")
    calls = {name: functools.partial(updates.step, *batch) for name, updates in running.items()}
    try:
        seconds = alternate(calls, rounds, warmup, clock=clock)
    except OUT_OF_MEMORY as error:
        raise LabkitError(
            f"out of memory with {len(running)} steps at the same time, each with its own weights and optimiser: "
            "compare fewer in one call, or use smaller batches."
        ) from error
    judge = Judge(makers[baseline], running[again].step, first.start, batch)
    peak = matmul_rate(batch[0].device)
    noise = interval(ratios(seconds[baseline], seconds[again]))
    verdicts = {baseline: ("baseline", "the others are compared with it"), again: ("noise", _against(noise))}
    rows: dict[str, dict] = {name: {"verdict": verdict, "why": why} for name, (verdict, why) in failed.items()}
    for name, updates in running.items():
        numbers = _numbers(updates, first, seconds[name], seconds[baseline], ranks.count() * len(batch[0]), peak)
        judged = functools.partial(judge.difference, makers[name], updates.step, name)
        verdict, why = verdicts.get(name) or _verdict(updates, first, numbers, noise, judged)
        rows[name] = {"verdict": verdict, "why": why, **numbers}
    table = pandas.DataFrame([rows[name] for name in makers], index=list(makers))  # NaN where a row has no number
    model = {"model": type(first.step.model).__name__, **first.step.model.settings}
    measured = {"batch_shape": list(batch[0].shape), "rounds": rounds, "peak_flop_per_s": peak, **model}
    table.attrs = {"stamp": stamp() | measured, "seconds": seconds}
    return table


def _check(steps: Mapping[str, Callable[[], Step]], batch: Batch, rounds: int) -> None:
    if not isinstance(steps, Mapping) or not steps:
        raise LabkitError(
            "steps: give functions that make a step, by name, at least a baseline: "
            "{'baseline': lambda: labkit.make_step(model())}."
        )
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise LabkitError("batch: give two tensors, (real_a, real_b).")
    if not isinstance(rounds, int) or rounds < 6:
        raise LabkitError(f"rounds={rounds!r}: fewer than 6 give no 95% interval. Use at least 6.")
    again = AGAIN.format(next(iter(steps)))
    if again in steps:
        raise LabkitError(f"steps[{again!r}]: the baseline's second row has this name. Give the step another name.")
    for name, maker in steps.items():
        if not name or isinstance(maker, Step) or not callable(maker):
            raise LabkitError(
                f"steps[{name!r}] is {type(maker).__name__}: give it a name, and a function that makes the step and "
                "its model, for example lambda: labkit.make_step(labkit.CycleGAN(), 'bf16'), so that each step has its "
                "own weights."
            )


def _tried(name: str, maker: Callable[[], Step], batch: Batch) -> FirstUpdates | tuple[str, str]:
    """The first updates of a new step; or, if it cannot be measured, the verdict and the reason."""
    held = torch.cuda.memory_allocated() if batch[0].is_cuda else 0
    torch.manual_seed(0)
    step = maker()
    if not isinstance(step, Step):
        raise LabkitError(f"steps[{name!r}] makes a {type(step).__name__}: it should return a step.")
    if reason := inactive(step):
        return "inactive", reason
    try:
        updates = FirstUpdates(step, batch, name)
        updates.peak_bytes -= held
        return updates
    except NeverLearns as error:
        return "not equivalent", str(error)
    except LabkitError as error:
        return "does not run", str(error)
    except OUT_OF_MEMORY as error:
        reason = str(error).partition(". ")[0]
    del step  # here, since the handler would keep the memory that ran out
    torch.cuda.empty_cache()
    return "out of memory", f"{reason}; {what_fits(maker, batch)}"


def what_fits(maker: Callable[[], Step], batch: Batch) -> str:
    """Halves a batch that does not fit until it does; the result in words."""
    images = len(batch[0]) // 2
    while images:
        try:
            real_a, real_b = (pictures[:images] for pictures in batch)
            maker()(real_a, real_b)
            return f"a batch of {images} fits"
        except OUT_OF_MEMORY:
            images //= 2
        torch.cuda.empty_cache()
    return "not even one picture fits"


def inactive(step: Step) -> str | None:
    """Which of a step's speed-ups do nothing on its model's device, and why; None if all act."""
    named = [speedup for name, speedup in SPEEDUPS.items() if isinstance(step, speedup)]
    reasons = [f"{speedup.name}: {reason}" for speedup in named if (reason := speedup.inactive(step.model))]
    return "; ".join(reasons) or None


def _numbers(
    updates: FirstUpdates, first: FirstUpdates, seconds: list[float], baseline: list[float], images: int, peak: float
) -> dict[str, float]:
    """The numbers of a row; without the distance from the baseline for another model."""
    median, faster = statistics.median(seconds), ratios(baseline, seconds)
    low, high = interval(faster)
    numbers = {
        "median_s": median,
        "spread": spread(seconds),
        "times_faster": statistics.median(faster),
        "times_faster_low": low,
        "times_faster_high": high,
        "images_per_s": images / median,
        "peak_bytes": updates.peak_bytes,
        "flop_per_s": updates.flops / median,
        "share_of_peak": updates.flops / median / peak,
    }
    if updates.networks == first.networks:
        distance = updates.first.by_player().distance(first.first.by_player())
        numbers |= {"loss_difference": distance.losses, "gradient_cosine": distance.cosine}
    return numbers


def _verdict(
    updates: FirstUpdates,
    first: FirstUpdates,
    numbers: Mapping,
    noise: tuple[float, float],
    judged: Callable[[], str | None],
) -> tuple[str, str]:
    """The verdict on a step that was measured and is not the baseline, and why; `judged` looks at it more closely."""
    between = (numbers["times_faster_low"], numbers["times_faster_high"])
    if updates.networks != first.networks:
        return "another model", _measured(numbers["times_faster"], between)
    names = other_names(updates.first.losses, first.first.losses)
    if reason := names or judged() or updates.difference(first):
        return "not equivalent", reason
    return speed_verdict(numbers["times_faster"], between, noise)


def speed_verdict(times: float, between: tuple[float, float], noise: tuple[float, float]) -> tuple[str, str]:
    """Whether a step that is `times` faster, with the interval `between`, differs by more than the baseline's `noise`.

    Returns:
        "faster", "slower" or "no difference", and the numbers in words.
    """
    if between[0] > max(1.0, noise[1]):
        return "faster", _measured(times, between)
    if between[1] < min(1.0, noise[0]):
        return "slower", _measured(times, between)
    return "no difference", f"{_measured(times, between)}; {_against(noise)}"


def _measured(times: float, between: tuple[float, float]) -> str:
    return f"{times:.3f} times faster, between {between[0]:.3f} and {between[1]:.3f}"


def _against(noise: tuple[float, float]) -> str:
    return f"the baseline against itself: between {noise[0]:.3f} and {noise[1]:.3f}"
