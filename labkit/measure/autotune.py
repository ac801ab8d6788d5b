"""The speed-ups to train with on this device: measured, compared with the baseline, stacked one by one."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, cudnn_benchmark
from labkit.errors import LabkitError
from labkit.measure.compare import compare
from labkit.measure.record import Pair
from labkit.measure.timing import alternate, ratio, synchronise
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS, excluded, make_step
from labtrace.files import atomic_write

if TYPE_CHECKING:
    import pandas

FILE = "speedups.json"  # in a run's folder
SMALLEST = 64  # pixels on a side with which steps are compared
FEWEST = 2  # rounds of a speed-up
CLOSE = 0.97  # times as fast; below, a speed-up is surely none
LAST_STEPS, LAST_SHARE = 45, 0.1  # of the comparison at the end: its steps, about, and its part of the time
WRONG = ("not equivalent", "another model", "does not run", "out of memory")
COMPILES = 3  # times as long as the baseline's first two updates, or longer
HOPELESS = 2  # times as long as the baseline's, in its second update


@cudnn_benchmark()  # as in training
def autotune(
    make_model: Callable[[], Model], batch: Pair, rounds: int = 8, limit_s: float = 600
) -> tuple[list[str], list[str]]:
    """The speed-ups that make a step of this model faster on this device, and a line of reasons for each.

    Each is added to those chosen so far, or takes the place of those that it excludes, and stays if the median over
    some rounds in turn is faster. That is a best guess, and where a noisy machine makes it wrong, little is lost. Those
    come first that are cheap to try, the fastest first, and those that compile something come last. At the end all that
    are chosen are compared with the baseline, on small pictures: if they compute something else, those that do so by
    themselves go. If nothing helps, nothing is chosen. Several ranks try and choose the same, each on its part of the
    batch. On a CPU with one thread the time is that of the process, in which other programs on its cores hardly show.

    Args:
        make_model: makes the model, on its device. It is called for every step that is tried.
        batch: as in training, (B, 3, H, W) in [-1, 1].
        rounds: the most measurements of each, at least 6.
        limit_s: how long it may take. If need be, it measures with a corner of the pictures, and leaves out what it has
            no time to try; lines say both. What has begun is finished, and so is the comparison at the end.
    """
    started = time.perf_counter()
    names, lines = candidates(make_model)
    alone = batch[0].device.type == "cpu" and not shared() and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter

    def maker(*names: str) -> Callable[[], Step]:
        return lambda: make_step(make_model(), *names, *shared())

    def left() -> float:
        return limit_s - max(ranks.largest([time.perf_counter() - started]))

    batch = corner(maker()(), batch, limit_s / (4 + len(names) * 2 * (FEWEST + 2)), lines)
    before, usual = left(), seconds_of(maker()(), batch)
    cheap = COMPILES * (before - left())
    took: dict[str, float] = {}
    costs: dict[str, float] = {}
    for name in names:
        before = left()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".*so it changes nothing", UserWarning)
                took[name] = seconds_of(maker(name)(), batch)
        except UserWarning as error:
            lines.append(f"{name}: left out, {str(error).removeprefix(f'{name}: ')}")
        except (LabkitError, *OUT_OF_MEMORY) as error:
            lines.append(f"{name}: left out, does not run: {error}")
        costs[name] = before - left()
    chosen: list[str] = []
    close: list[str] = []  # these get a second try, on top of what is chosen by then
    current = step = maker()()
    waiting = sorted(took, key=lambda name: (costs[name] > cheap, took[name]))
    while waiting:
        name = waiting.pop(0)
        if took[name] > HOPELESS * usual:
            lines.append(f"{name}: left out, slower: its second update took {took[name] / usual:.1f} times as long")
            continue
        turns = int((left() - LAST_SHARE * limit_s) / (1 + len(waiting)) / (usual + took[name])) - 1
        if turns < FEWEST:
            lines.append(f"{name}: not tried, since {limit_s:g} s are over: choose it by name if it should be used")
            continue
        rest = [one for one in chosen if one not in excluded(name)]
        where = "".join(f"in the place of {one}, " for one in chosen if one not in rest)
        where += f"on top of {', '.join(rest) or 'the baseline'}"
        try:
            step = maker(*rest, name)()
            times = gain(current, step, batch, min(turns, rounds), clock)
        except (LabkitError, *OUT_OF_MEMORY) as error:
            lines.append(f"{name}: left out, does not run {where}: {error}")
            continue
        lines.append(f"{name}: {'chosen' if times > 1 else 'left out'}, {times:.2f} times as fast {where}")
        if times > 1:
            chosen, current = [*rest, name], step
        elif times > CLOSE and name not in close:
            close.append(name)
            waiting.append(name)
    del current, step  # their memory

    def judged(*names: str) -> pandas.Series:
        steps = {"baseline": maker(), "chosen": maker(*names)}
        return compare(steps, small, rounds=6, limit_s=0).loc["chosen"]

    if chosen:
        small = corner(maker()(), batch, LAST_SHARE * limit_s / LAST_STEPS, [])
        row = judged(*chosen)
        if row["verdict"] in WRONG:
            rows = {one: judged(one) for one in chosen}
            wrong = [one for one in chosen if rows[one]["verdict"] in WRONG]
            lines += [f"{one}: left out after all, {rows[one]['verdict']}: {rows[one]['why']}" for one in wrong]
            if not wrong:
                lines.append(f"{', '.join(chosen)}: left out after all, {row['verdict']} together: {row['why']}")
            chosen = [one for one in chosen if wrong and one not in wrong]
        elif row["verdict"] == "slower" and small is batch:
            lines.append(f"{', '.join(chosen)}: left out after all, slower together: {row['why']}")
            chosen = []
    return chosen, lines


def gain(current: Step, step: Step, batch: Pair, rounds: int, clock: Callable[[], float]) -> float:
    """How many times as fast as `current` another step is: the median of so many rounds in turn."""
    calls = {"without": partial(current, *batch), "with": partial(step, *batch)}
    seconds = alternate(calls, rounds, warmup=1, clock=clock)
    return ratio(seconds["without"], seconds["with"])


def seconds_of(step: Step, batch: Pair) -> float:
    """How long the second update of a new step takes: in the first, memory is allocated and kernels are chosen."""
    for _ in range(2):
        synchronise()
        started = time.perf_counter()
        step(*batch)
        synchronise()
    [took] = ranks.largest([time.perf_counter() - started])
    return took


def corner(step: Step, batch: Pair, limit_s: float, lines: list[str]) -> Pair:
    """The batch or, where a step with it takes longer, pictures of it halved until it does not, which a line tells."""
    took = seconds_of(step, batch)
    side, least = min(batch[0].shape[-2:]), max(SMALLEST, step.model.min_size)
    while took > limit_s and side // 2 >= least and side // 2 % step.model.size_multiple == 0:
        side, took = side // 2, took / 4
    if side == min(batch[0].shape[-2:]):
        return batch
    lines.append(f"auto: measured with {side}x{side} pixels of each picture, since with all of them it takes long")
    return batch[0][..., :side, :side], batch[1][..., :side, :side]


def remembered(folder: Path, make_model: Callable[[], Model], batch: Pair) -> tuple[list[str], list[str]]:
    """`autotune` once a run: its choice is kept in the run's folder, so that a resumed run has the same speed-ups.

    On another device it chooses again.
    """
    file, device = folder / FILE, f"{batch[0].device.type}, {stamp()['device']}"
    if file.is_file() and (saved := json.loads(file.read_text()))["device"] == device:
        return saved["speedups"], [f"auto: chosen when this run began; remove {file} to choose again"]
    names, lines = autotune(make_model, batch)
    if ranks.number() == 0:
        with atomic_write(file) as part:
            part.write_text(json.dumps({"device": device, "speedups": names, "why": lines}, indent=1))
    return names, [*lines, f"auto: {', '.join(names) or 'the baseline'}"]


def pick(table: pandas.DataFrame, memory_bytes: float = math.inf) -> str:
    """The name of the fastest step of a comparison that computes the same and fits, or the baseline if none is faster.

    Args:
        table: from `labkit.compare`.
        memory_bytes: the most memory that the step may hold. A step of unknown memory (NaN) counts as fitting.
    """
    good = table[(table["verdict"] == "faster") & ~(table["peak_bytes"] > memory_bytes)]
    return table.index[0] if good.empty else good["times_faster"].idxmax()


def candidates(make_model: Callable[[], Model]) -> tuple[list[str], list[str]]:
    """The speed-ups that may save time with this model on its device, and for each of the others the reason, a line."""
    names, lines, model = [], [], make_model()
    for name, speedup in SPEEDUPS.items():
        reasons = [reason for other, reason in speedup.excludes.items() if other in shared()]
        reasons += speedup.obstacles(model).values()
        if reasons:
            lines.append(f"{name}: not tried, {reasons[0]}")
        else:
            names.append(name)
    return names, lines


def shared() -> tuple[str, ...]:
    """The speed-up that every step of several ranks needs, or none in a single process."""
    return ("data_parallel",) if ranks.count() > 1 else ()
