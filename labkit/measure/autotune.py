"""Which speed-ups to train with, here: measured on this device, held to the baseline, stacked one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from labkit.errors import LabkitError
from labkit.measure.compare import compare
from labkit.measure.record import Batch
from labkit.variants.registry import SPEEDUPS, make_step

if TYPE_CHECKING:
    import pandas


def choose(make_model: Callable[[], nn.Module], batch: Batch, rounds: int = 8) -> tuple[list[str], list[str]]:
    """The speed-ups that make a step of this model faster on this device, and in words why, each one in a line.

    Each is measured alone. Then, the fastest first, each is put on top of those chosen so far, and stays if that is
    faster than without it by more than noise, and still computes the same. Nothing is chosen if nothing helps.

    Args:
        make_model: makes the model, on its device; it is called for every step that is tried.
        batch: as it will be trained on, (B, 3, H, W) in [-1, 1].
        rounds: measurements of each, at least 6.
    """
    names, said = candidates(make_model)

    def maker(*names: str) -> Callable:
        return lambda: make_step(make_model(), *names)

    alone = compare({"baseline": maker(), **{name: maker(name) for name in names}}, batch, rounds)
    alone = alone.loc[names].sort_values("times_faster", ascending=False)
    chosen: list[str] = []
    for name, row in alone.iterrows():
        if row["verdict"] not in ("faster", "no difference") or row["times_faster"] <= 1:
            said.append(f"{name}: left out, {row['verdict']}: {row['why']}")
            continue
        try:
            table = compare({"without": maker(*chosen), "with": maker(*chosen, name)}, batch, rounds)
        except LabkitError as error:
            said.append(f"{name}: left out, {error}")
            continue
        verdict, why = table.loc["with", ["verdict", "why"]]
        if verdict == "faster":
            said.append(f"{name}: chosen, on top of {', '.join(chosen) or 'the baseline'} {why}")
            chosen.append(name)
        else:
            said.append(f"{name}: left out, {verdict} on top of {', '.join(chosen) or 'the baseline'}: {why}")
    return chosen, said


def pick(table: pandas.DataFrame, memory_bytes: float = math.inf) -> str:
    """The name of the fastest step of a comparison that computes the same and fits; the baseline if none is faster.

    Args:
        table: from `labkit.compare`.
        memory_bytes: what the step may hold at most. A step whose memory is not known (NaN) is taken to fit.
    """
    good = table[(table["verdict"] == "faster") & ~(table["peak_bytes"] > memory_bytes)]
    return table.index[0] if good.empty else good["times_faster"].idxmax()


def candidates(make_model: Callable[[], nn.Module]) -> tuple[list[str], list[str]]:
    """The speed-ups that may save time with this model on its device; and, a line each, why the others do not."""
    names, said = [], []
    for name, speedup in SPEEDUPS.items():
        model = make_model()  # anew, as some speed-ups change it
        try:
            make_step(model, name)
            reason = speedup.inactive(model) or speedup.untried(model)
        except LabkitError as error:
            reason = str(error)
        if reason:
            said.append(f"{name}: not tried, {reason}")
        else:
            names.append(name)
    return names, said
