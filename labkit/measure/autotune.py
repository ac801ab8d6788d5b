"""The speed-ups to train with on this device: measured, compared with the baseline, stacked one by one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import ranks
from labkit.measure.compare import compare
from labkit.measure.record import Pair
from labkit.measure.timing import synchronise
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS, make_step
from labtrace.files import atomic_write

if TYPE_CHECKING:
    import pandas

FILE = "speedups.json"  # in a run's folder
SMALLEST = 64  # pixels on a side with which steps are compared
NOISY = 1.1  # the upper over the lower end of what the baseline is against itself


def autotune(
    make_model: Callable[[], Model], batch: Pair, rounds: int = 8, limit_s: float = 600
) -> tuple[list[str], list[str]]:
    """The speed-ups that make a step of this model faster on this device, and a line of reasons for each.

    Each is measured alone. Then, the fastest first, each is added to those chosen so far, and stays if the step gets
    faster by more than noise and still computes the same. If nothing helps, nothing is chosen. Several
    ranks try and choose the same, each on its part of the batch. On a CPU the time is that of the process, in which
    other programs on its cores hardly show.

    Args:
        make_model: makes the model, on its device. It is called for every step that is tried.
        batch: as in training, (B, 3, H, W) in [-1, 1].
        rounds: measurements of each, at least 6.
        limit_s: about how long it may take. If need be, it measures with a corner of the pictures, and says so.
    """
    names, said = candidates(make_model)
    clock = time.process_time if batch[0].device.type == "cpu" and not shared() else time.perf_counter

    def maker(*names: str) -> Callable[[], Step]:
        return lambda: make_step(make_model(), *names, *shared())

    steps = (2 + 2.5 * len(names)) * (rounds + 7)  # each alone, then half of them beside two others
    batch = corner(maker()(), batch, limit_s / steps, said)
    alone = compare({"baseline": maker(), **{name: maker(name) for name in names}}, batch, rounds, clock=clock)
    again, alone = alone.iloc[1], alone.loc[names].sort_values("times_faster", ascending=False)
    chosen: list[str] = []
    for name, row in alone.iterrows():
        where = ""
        if row["verdict"] in ("faster", "no difference") and row["times_faster"] > 1:
            where = f" on top of {', '.join(chosen) or 'the baseline'}"
            makers = {"without": maker(*chosen), "with": maker(*chosen, name)}
            row = compare(makers, batch, rounds, clock=clock).loc["with"]
            if row["verdict"] == "faster":
                said.append(f"{name}: chosen,{where} {row['why']}")
                chosen.append(name)
                continue
        said.append(f"{name}: left out, {row['verdict']}{where}: {row['why']}")
    if again["times_faster_high"] > NOISY * again["times_faster_low"]:
        said.append(f"auto: this machine is too noisy for small gains; {again['why']}")
    return chosen, said


def corner(step: Step, batch: Pair, limit_s: float, said: list[str]) -> Pair:
    """The batch or, where a step with it takes longer, pictures of it halved until it does not, said in a line."""
    for _ in range(2):  # the first time, memory is allocated and kernels are chosen
        synchronise()
        started = time.perf_counter()
        step(*batch)
        synchronise()
    [took] = ranks.largest([time.perf_counter() - started])
    side, least = min(batch[0].shape[-2:]), max(SMALLEST, step.model.min_size)
    while took > limit_s and side // 2 >= least and side // 2 % step.model.size_multiple == 0:
        side, took = side // 2, took / 4
    if side == min(batch[0].shape[-2:]):
        return batch
    said.append(f"auto: measured with {side}x{side} pixels of each picture, since with all of them it takes long")
    return batch[0][..., :side, :side], batch[1][..., :side, :side]


def remembered(folder: Path, make_model: Callable[[], Model], batch: Pair) -> tuple[list[str], list[str]]:
    """`autotune` once a run: its choice is kept in the run's folder, so that a resumed run has the same speed-ups.

    On another device it chooses again.
    """
    file, device = folder / FILE, f"{batch[0].device.type}, {stamp()['device']}"
    if file.is_file() and (saved := json.loads(file.read_text()))["device"] == device:
        return saved["speedups"], [f"auto: chosen when this run began; remove {file} to choose again"]
    names, said = autotune(make_model, batch)
    if ranks.number() == 0:
        with atomic_write(file) as part:
            part.write_text(json.dumps({"device": device, "speedups": names, "why": said}, indent=1))
    return names, [*said, f"auto: {', '.join(names) or 'the baseline'}"]


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
    names, said, model = [], [], make_model()
    for name, speedup in SPEEDUPS.items():
        reasons = [reason for other, reason in speedup.excludes.items() if other in shared()]
        reasons += speedup.obstacles(model).values()
        if reasons:
            said.append(f"{name}: not tried, {reasons[0]}")
        else:
            names.append(name)
    return names, said


def shared() -> tuple[str, ...]:
    """The speed-up that every step of several ranks needs, or none in a single process."""
    return ("data_parallel",) if ranks.count() > 1 else ()
