"""The verdict on one rank's training: its first remedy, what bounds it if one cause dominates, and the numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas

from labkit.errors import LabkitError
from labkit.simulate.remedies import PARTS, PriceList
from labkit.traces import tables
from labkit.traces.rank import Rank

LONG_DELAY = 100.0  # microseconds, HTA's default
WORTH, DOMINATES, MUCH = 0.1, 2.0, 0.25  # the rule of `bound_by`; and a part of the wall time nobody should overlook
WORDS = {
    "data": "the loading of data",
    "host": "the host's launches",
    "compute": "the kernels that compute",
    "memory": "copies and memsets",
    "communication": "communication",
}


def summary(rank: Rank, ranks: Collection[Rank]) -> pandas.DataFrame:
    """One row: the verdict, the verdict in words, and the numbers. `ranks` are all of the training."""
    numbers = _numbers(rank)
    first = {"first_remedy": "", "times_faster_at_most": np.nan}
    try:
        prices = PriceList(rank, ranks)
    except LabkitError as error:  # it cannot be played again
        numbers |= {f"cost_of_{part}": np.nan for part in PARTS}
        why = f"{_idle_in_words(numbers)} A remedy cannot be named: {error}"
    else:
        numbers |= {f"cost_of_{part}": share for part, share in prices.costs().items()}
        remedies = prices.remedies()
        first = {"first_remedy": remedies["cause"][0], "times_faster_at_most": remedies["times_faster_at_most"][0]}
        why = f"{_why(numbers, remedies)} {prices.doubt}".strip()
    return pandas.DataFrame([{"bound_by": bound_by(numbers), **first, "why": why, **numbers}])


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
    """The bottleneck: "data", "host", "compute", "memory" or "communication"; or "several", or "unknown".

    `labkit.Trace.summary` explains the rule. `numbers` are columns of its table: cost_of_data and so on, shares of the
    wall time from 0 to 1. Shares of the idle and of the busy time play no part: two causes may hide behind each other.
    Nor do launch delays: with a full queue they are long, and the GPU is busy.
    """
    found = sorted((numbers[f"cost_of_{part}"], part) for part in PARTS)
    if np.isnan([cost for cost, _ in found]).any():
        return "unknown"
    (second, _), (first, part) = found[-2:]
    return part if first >= WORTH and first >= DOMINATES * second else "several"


def _why(numbers: Mapping[str, float], remedies: pandas.DataFrame) -> str:
    """The first remedies, the verdict and the numbers it rests on, in words."""
    worth = max(1, min(3, int((remedies["share_of_wall"] >= WORTH).sum())))
    told = [f"{row.times_faster_at_most:.2f} times faster without {row.cause}" for row in remedies[:worth].itertuples()]
    bound = bound_by(numbers)
    if np.isnan(numbers["idle_of_wall"]):
        return "The kernels on the GPU took no time at all."
    if bound == "several":
        verdict = "No cause dominates."
    else:
        verdict = f"One cause dominates: {WORDS[bound]}."
    return f"Played again (SIMULATED): at most {', '.join(told)}. {verdict} {_idle_in_words(numbers)}{_queue(numbers)}"


def _idle_in_words(numbers: Mapping[str, float]) -> str:
    if not numbers["idle_of_wall"] > 0:
        return "The GPU was never idle."
    idle = f"The GPU was idle for {numbers['idle_of_wall']:.0%} of the wall time"
    waited = f"{numbers['host_wait_of_idle']:.0%} of that because the next kernel was not launched yet"
    loading = f", and {numbers['data_of_idle']:.0%} while the host loaded data" if numbers["data_of_idle"] else ""
    return f"{idle}, {waited}{loading}."


def _queue(numbers: Mapping[str, float]) -> str:
    """The queue in words. It is good news only if nothing on the host costs much."""
    if np.isnan(numbers["mean_queue"]):
        return ""
    delayed = f" {numbers['long_delays_of_kernels']:.0%} of the kernels began more than {LONG_DELAY:g} us after their"
    told = f"{delayed} launch, and {numbers['mean_queue']:.1f} waited on average"
    on_the_gpu = bound_by(numbers) in tables.KINDS and numbers["cost_of_data"] + numbers["cost_of_host"] < MUCH
    if on_the_gpu and numbers["long_delays_of_kernels"] > 0.5:
        return f"{told}: a full queue, not overhead."
    return f"{told}."
