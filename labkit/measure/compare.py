"""Several training steps side by side: speed, memory, and whether they still compute the same; and their file."""

from __future__ import annotations

import copy
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tqdm.auto import tqdm

from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.measure.equivalence import FirstUpdates
from labkit.measure.record import Batch
from labkit.measure.roofline import matmul_rate, step_flops
from labkit.measure.timing import alternate, interval, ratios, spread
from labkit.stamp import stamp
from labkit.step import Step
from labkit.variants.registry import SPEEDUPS, make_step

if TYPE_CHECKING:
    import pandas

FORMAT = 1
AGAIN = "{} again"  # the baseline a second time: the difference between the two is noise
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
    """Times steps in turn, in one process, and compares the losses and gradients of each with the first one's.

    Args:
        steps: functions that make a step, by name; the first is the baseline. Each is called after the same seed, so
            that steps of the same networks begin with the same weights. No two may share a model.
        batch: (real_a, real_b), (B, 3, H, W) in [-1, 1], on the models' device.
        rounds: measurements of each step; at least 6, or there is no 95% interval.
        warmup: rounds that do not count.
        clock: gives seconds; by default wall time.

    Returns:
        One row a step, and a second row of the baseline ("... again"), whose difference from the first is noise. The
        columns: verdict; why; median_s; spread, half the interquartile range over the median; times_faster than the
        baseline, with times_faster_low and _high, a 95% interval; images_per_s of either domain; peak_bytes while it
        runs, weights and optimiser included (NaN on a CPU, where PyTorch does not count); flop_per_s; share_of_peak,
        which is flop_per_s over the device's measured rate of float32 matrix products; loss_difference, the largest
        relative one of the first step; gradient_cosine, the smallest of any player. ``attrs["stamp"]`` says on which
        machine and with which settings it was measured, ``attrs["seconds"]`` holds every measurement.

        verdict is "baseline", "noise" (the second baseline), "faster", "slower", "no difference", "not equivalent",
        "another model", "inactive", "does not run" or "out of memory". Where nothing was measured the numbers are NaN,
        never 1.00. A step is "not equivalent" if it leaves out or adds a loss; if its first losses or gradients, or
        its losses and weights after three updates, differ by more than 16-bit rounding explains; or if it stops
        learning.

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
    assert first.updates is not None
    if bad := [name for name, loss in first.updates.first.losses.items() if not math.isfinite(loss)]:
        raise LabkitError(f"{baseline}, the baseline: {', '.join(bad)} is not a finite number. Is the batch finite?")
    if len({id(one.step.model) for one in made.values()}) < len(made):
        raise LabkitError("two steps share one model: let each function make a model of its own.")
    running = {name: one.run for name, one in made.items() if not one.verdict}
    try:
        seconds = _timed(running, rounds, warmup, clock)
    except OUT_OF_MEMORY as error:
        raise LabkitError(
            f"out of memory with {len(running)} steps at the same time, each with its own weights and optimiser: "
            "compare fewer in one call, or use smaller batches."
        ) from error
    peak = matmul_rate(batch[0].device)
    noise = interval(ratios(seconds[baseline], seconds[again]))
    rows = {}
    for name, one in made.items():
        row = _speed(one, seconds.get(name), seconds[baseline], len(batch[0]), peak)
        if name == baseline:
            verdict, why = "baseline", "the others are compared with it"
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
    """`labkit.measure.timing.alternate`, with a progress bar."""
    with tqdm(desc="rounds", total=len(running) * (rounds + warmup), delay=5) as bar:

        def counted(run: Callable) -> Callable[[], object]:
            return lambda: (run(), bar.update())

        return alternate({name: counted(run) for name, run in running.items()}, rounds, warmup, clock=clock)


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


class _Made:
    """A step after its first updates, with its memory; or the reason why it does not run."""

    def __init__(self, name: str, maker: Callable[[], Step], batch: Batch) -> None:
        held = torch.cuda.memory_allocated() if batch[0].is_cuda else 0
        torch.manual_seed(0)
        self.step = maker()
        if not isinstance(self.step, Step):
            raise LabkitError(f"steps[{name!r}] makes a {type(self.step).__name__}: it should return a step.")
        self.run = functools.partial(self.step, *batch)
        self.updates: FirstUpdates | None = None
        self.peak_bytes, self.flops = math.nan, math.nan
        self.verdict, self.why = "", ""
        if reason := inactive(self.step):
            self.verdict, self.why = "inactive", reason
            return
        try:
            self.flops = step_flops(make_step(copy.deepcopy(self.step.model)), batch)
            self.updates = FirstUpdates(self.step, batch, name)
            if self.updates.peak_bytes is not None and batch[0].is_cuda:
                self.peak_bytes = self.updates.peak_bytes - held
        except OUT_OF_MEMORY as error:
            self.verdict, self.why = "out of memory", str(error).partition(". ")[0]
        except LabkitError as error:
            self.verdict, self.why = "does not run", str(error)
        if self.verdict == "out of memory":  # out of the handler, which would keep the memory that ran out
            torch.cuda.empty_cache()
            self.why += f"; {what_fits(maker, batch)}"


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


def _speed(one: _Made, seconds: list[float] | None, baseline: list[float], images: int, peak: float) -> dict:
    """The numbers of a row; NaN where the step did not run."""
    if seconds is None:
        return dict.fromkeys(SPEED, math.nan)
    median, faster = statistics.median(seconds), ratios(baseline, seconds)
    values = (median, spread(seconds), statistics.median(faster), *interval(faster), images / median, one.peak_bytes)
    return dict(zip(SPEED, (*values, one.flops / median, one.flops / median / peak), strict=True))


def _verdict(one: _Made, baseline: _Made, row: Mapping, noise: tuple[float, float]) -> tuple[str, str]:
    """The verdict on a step that is not the baseline, and why."""
    if one.updates is None or baseline.updates is None:
        return one.verdict, one.why
    between = (row["times_faster_low"], row["times_faster_high"])
    if one.updates.networks != baseline.updates.networks:
        return "another model", _measured(row["times_faster"], between)
    if reason := one.updates.difference(baseline.updates):
        return "not equivalent", reason
    return speed_verdict(row["times_faster"], between, noise)


def _distance(one: _Made, baseline: _Made) -> dict[str, float]:
    """How far the first step is from the baseline's; NaN for another model, or for a step that did not run."""
    if one.updates is None or baseline.updates is None or one.updates.networks != baseline.updates.networks:
        return {"loss_difference": math.nan, "gradient_cosine": math.nan}
    distance = one.updates.first.by_player().distance(baseline.updates.first.by_player())
    return {"loss_difference": distance.losses, "gradient_cosine": distance.cosine}


def speed_verdict(times: float, between: tuple[float, float], noise: tuple[float, float]) -> tuple[str, str]:
    """Whether a step that is `times` faster, with the interval `between`, differs by more than the baseline's `noise`.

    Returns:
        "faster", "slower" or "no difference", and the numbers in words.
    """
    if between[0] > max(1.0, noise[1]):
        return "faster", _measured(times, between)
    if between[1] < min(1.0, noise[0]):
        return "slower", _measured(times, between)
    against = f"the baseline against itself: between {noise[0]:.3f} and {noise[1]:.3f}"
    return "no difference", f"{_measured(times, between)}; {against}"


def _measured(times: float, between: tuple[float, float]) -> str:
    return f"{times:.3f} times faster, between {between[0]:.3f} and {between[1]:.3f}"


def save(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table of measurements with its ``attrs`` to a file ending in .json; NaN becomes null.

    Raises:
        LabkitError: the name has another ending, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise LabkitError(f"{path}: a table's name ends in .json.")
    content = as_json(table)
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return path


def load(path: Path | str) -> pandas.DataFrame:
    """Reads a table that `save` wrote.

    Raises:
        LabkitError: there is no such file, or it holds no table.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        return from_json(content)
    except OSError as error:
        raise LabkitError(f"{path}: cannot be read ({error.strerror}). Is the path right?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabkitError(
            f"{path}: no table in format {FORMAT} ({error}). `labkit compare` writes such a file."
        ) from error


def as_json(table: pandas.DataFrame) -> dict:
    """A table as JSON can hold it; `from_json` takes it back."""
    rows = json.loads(table.to_json(orient="records", double_precision=15))
    return {"format": FORMAT, "attrs": table.attrs, "index": list(table.index), "rows": rows}


def from_json(content: dict) -> pandas.DataFrame:
    """The table of which `as_json` made `content`."""
    import pandas

    table = pandas.DataFrame(content["rows"], index=content["index"])
    table.attrs = content["attrs"]
    unknown = [column for column in table if table[column].isna().all()]
    return table.astype(dict.fromkeys(unknown, float))  # null alone would be None, not NaN
