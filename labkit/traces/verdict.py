"""The bottleneck of one rank's training, from the numbers of the other tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas

from labkit.traces import tables
from labkit.traces.rank import Rank

LONG_DELAY = 100.0  # microseconds, HTA's default


def summary(rank: Rank) -> pandas.DataFrame:
    """One row: the numbers, the verdict, and the verdict in words."""
    numbers = _numbers(rank)
    bound = bound_by(numbers)
    return pandas.DataFrame([{"bound_by": bound, "why": _why(bound, numbers), **numbers}])


def _numbers(rank: Rank) -> dict[str, float]:
    parts = tables.temporal(rank).set_index("part")
    gaps, kernels = tables.find_gaps(rank.kernels), rank.kernels
    idle_us, known = float(gaps["us"].sum()), kernels["delay"].notna()
    data_us = float(np.sum(rank.loading.covered(gaps["begin"], gaps["end"])))
    host_us = float(gaps.loc[gaps["cause"] == "host_wait", "us"].sum())
    return {
        "wall_us": parts.loc["wall", "us"],
        "idle_of_wall": parts.loc["idle", "share_of_wall"],
        "host_wait_of_idle": host_us / (idle_us or np.nan),
        "data_of_idle": data_us / (idle_us or np.nan),
        **{f"{kind}_of_busy": parts.loc[kind, "share_of_busy"] for kind in tables.KINDS},
        "long_delays_of_kernels": (kernels.loc[known, "delay"] > LONG_DELAY).mean(),
        "mean_queue": tables.mean_queue(rank) if known.any() else np.nan,
    }


def bound_by(numbers: Mapping[str, float]) -> str:
    """The bottleneck: "host", "data", "compute", "memory", "communication", or "unknown".

    `labkit.Trace.summary` explains the rule. `numbers` are columns of its table: idle_of_wall, data_of_idle,
    host_wait_of_idle, compute_of_busy, memory_of_busy and communication_of_busy, shares from 0 to 1. Launch delays
    play no part: with a full queue they are long, and the GPU is busy.
    """
    if not numbers["idle_of_wall"] <= 0.5:  # NaN (no kernel took any time) leads to "unknown"
        if numbers["data_of_idle"] > 0.5:
            return "data"
        return "host" if numbers["host_wait_of_idle"] > 0.5 else "unknown"
    return max(tables.KINDS, key=lambda kind: numbers[f"{kind}_of_busy"])


def _why(bound_by: str, numbers: Mapping[str, float]) -> str:
    """The verdict in words, with the numbers it rests on."""
    idle = f"The GPU was idle for {numbers['idle_of_wall']:.0%} of the wall time"
    if np.isnan(numbers["idle_of_wall"]):
        return "The kernels on the GPU took no time at all."
    if bound_by == "data":
        reason = f"and for {numbers['data_of_idle']:.0%} of that the host was loading data."
    elif bound_by == "host":
        reason = f"for {numbers['host_wait_of_idle']:.0%} of that because the next kernel was not launched yet."
    elif bound_by == "unknown":
        reason = "but mostly neither for the host nor for data, or the launches are not in the trace: see idle()."
    else:
        reason = f"and of its busy time {bound_by} took {numbers[f'{bound_by}_of_busy']:.0%}."
    return f"{idle}, {reason} {_queue_in_words(numbers)}"


def _queue_in_words(numbers: Mapping[str, float]) -> str:
    if np.isnan(numbers["mean_queue"]):
        return "No launches are in the trace, so the queue is not known."
    return (
        f"{numbers['long_delays_of_kernels']:.0%} of the kernels began more than {LONG_DELAY:g} us after their launch, "
        f"and {numbers['mean_queue']:.1f} waited on average: long delays on a busy GPU are a full queue, not overhead."
    )
