"""The speed-ups to train with on this device: measured, compared with the baseline, stacked one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import ranks
from labkit.measure.compare import compare
from labkit.measure.record import Pair
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS, make_step
from labtrace.files import atomic_write

if TYPE_CHECKING:
    import pandas

FILE = "speedups.json"  # in a run's folder


def autotune(make_model: Callable[[], Model], batch: Pair, rounds: int = 8) -> tuple[list[str], list[str]]:
    """The speed-ups that make a step of this model faster on this device, and a line of reasons for each.

    Each is measured alone. Then, the fastest first, each is added to those chosen so far, and stays if the step gets
    faster by more than noise and still computes the same. If nothing helps, nothing is chosen. Several
    ranks try and choose the same, each on its part of the batch.

    Args:
        make_model: makes the model, on its device. It is called for every step that is tried.
        batch: as in training, (B, 3, H, W) in [-1, 1].
        rounds: measurements of each, at least 6.
    """
    names, said = candidates(make_model)

    def maker(*names: str) -> Callable[[], Step]:
        return lambda: make_step(make_model(), *names, *shared())

    alone = compare({"baseline": maker(), **{name: maker(name) for name in names}}, batch, rounds)
    alone = alone.loc[names].sort_values("times_faster", ascending=False)
    chosen: list[str] = []
    for name, row in alone.iterrows():
        where = ""
        if row["verdict"] in ("faster", "no difference") and row["times_faster"] > 1:
            where = f" on top of {', '.join(chosen) or 'the baseline'}"
            row = compare({"without": maker(*chosen), "with": maker(*chosen, name)}, batch, rounds).loc["with"]
            if row["verdict"] == "faster":
                said.append(f"{name}: chosen,{where} {row['why']}")
                chosen.append(name)
                continue
        said.append(f"{name}: left out, {row['verdict']}{where}: {row['why']}")
    return chosen, said


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
