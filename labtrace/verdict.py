"""The verdict on one rank's training: its first remedy, its bottleneck if one cause dominates, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas

from labtrace import host, tables
from labtrace.rank import Rank
from labtrace.tables import LONG_DELAY_US

PARTS = ("data", "host", "compute", "memory", "communication")  # of the work
MOST_GAPS = 3  # that are named, if together they are most of the idle time
LEAST_SHARE = 0.1  # of the wall time: a part of the work that costs less is not the bottleneck
LEAST_LEAD = 2.0  # the ratio of the bottleneck's cost to the next largest
HIGH_HOST_COST = 0.25  # of the wall time: if host and data cost more, a full queue is no good news
WORDS = {
    "data": "the loading of data",
    "host": "the work of the host",
    "compute": "the kernels that compute",
    "memory": "copies and memsets",
    "communication": "communication",
}
HOST = {  # causes on the host, in words
    host.LAUNCHES: "launching",
    host.START_UP: "the start-up of first calls",
    host.MEMORY: "calls that give and free memory",
    host.WAITS: "calls that wait",
    host.OTHER: "other work than launching, such as Python's",
}


def summary(rank: Rank, remedies: pandas.DataFrame | None, costs: Mapping[str, float], doubt: str) -> pandas.DataFrame:
    """One row: the verdict, the verdict in words, and the numbers.

    Args:
        rank: the recording.
        remedies: the rows of `labtrace.Trace.remedies`, or None if the recording cannot be played again.
        costs: the shares of the wall time that would be gone without each of `PARTS`, NaN if that is not known.
        doubt: the faults of the recording, in words, which come first.
    """
    numbers = _numbers(rank) | {f"cost_of_{part}": costs.get(part, np.nan) for part in PARTS}
    first = {"first_remedy": "", "times_faster_at_most": np.nan}
    if remedies is None:
        why = f"A remedy cannot be named: {doubt} {_idle_in_words(numbers)}{_few_gaps(rank, numbers)}"
    else:
        first = {"first_remedy": remedies["cause"][0], "times_faster_at_most": remedies["times_faster_at_most"][0]}
        why = f"{doubt} {_why(rank, numbers, remedies)}".strip()
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
        "long_delays_of_kernels": (kernels.loc[known, "delay"] > LONG_DELAY_US).mean(),
        "mean_queue": tables.mean_queue(rank) if known.any() else np.nan,
    }


def bound_by(numbers: Mapping[str, float]) -> str:
    """The bottleneck: "data", "host", "compute", "memory" or "communication", or "several", or "unknown".

    `labtrace.Trace.summary` explains the rule. `numbers` are columns of its table: cost_of_data and so on, shares of
    the wall time from 0 to 1. Shares of the idle and of the busy time play no part, since two causes may hide behind
    each other. Nor do launch delays: with a full queue they are long, and the GPU is busy.
    """
    found = sorted((numbers[f"cost_of_{part}"], part) for part in PARTS)
    if np.isnan([cost for cost, _ in found]).any():
        return "unknown"
    (second, _), (first, part) = found[-2:]
    return part if first >= LEAST_SHARE and first >= LEAST_LEAD * second else "several"


def _why(rank: Rank, numbers: Mapping[str, float], remedies: pandas.DataFrame) -> str:
    """The first remedies, the verdict and the numbers it rests on, in words."""
    worth = max(1, min(3, int((remedies["share_of_wall"] >= LEAST_SHARE).sum())))
    told = [f"{row.times_faster_at_most:.2f} times faster without {row.cause}" for row in remedies[:worth].itertuples()]
    bound = bound_by(numbers)
    if np.isnan(numbers["idle_of_wall"]):
        return "The kernels on the GPU took no time at all."
    if bound == "several":
        verdict = "No cause dominates."
    else:
        verdict = f"One cause dominates: {WORDS[bound]}{_of_host(remedies) if bound == 'host' else ''}."
    idle = f"{_idle_in_words(numbers)}{_few_gaps(rank, numbers)}"
    return f"Played again (SIMULATED): at most {', '.join(told)}. {verdict} {idle}{_queue(numbers)}"


def _of_host(remedies: pandas.DataFrame) -> str:
    """The largest cause on the host, in words."""
    causes = [cause for cause in remedies["cause"] if cause in HOST]
    return f", most of it {HOST[causes[0]]}" if causes else ""


def _few_gaps(rank: Rank, numbers: Mapping[str, float]) -> str:
    """The gaps that are most of the idle time, and the events that filled them, if there are three or fewer."""
    if not numbers["idle_of_wall"] >= LEAST_SHARE:
        return ""
    largest = tables.gaps(rank, MOST_GAPS)
    idle = numbers["idle_of_wall"] * numbers["wall_us"]
    many = 1 + int(np.argmax(largest["us"].cumsum() > idle / 2))
    share = largest["us"][:many].sum() / idle
    if share <= 0.5:
        return ""
    told = [
        f"{us / 1e3:,.1f} ms {f'filled by {name}' if share > 0 else 'without an event on the host'}"
        for us, name, share in zip(largest["us"], largest["filled_by"], largest["share_filled"], strict=True)
    ]
    gaps = "One gap is" if many == 1 else f"{many} gaps are"
    return f" {gaps} {share:.0%} of the idle time: {', '.join(told[:many])}."


def _idle_in_words(numbers: Mapping[str, float]) -> str:
    if not numbers["idle_of_wall"] > 0:
        return "The GPU was never idle."
    idle = f"The GPU was idle for {numbers['idle_of_wall']:.0%} of the wall time"
    if np.isnan(numbers["mean_queue"]):  # no launch is known, or the clocks of host and GPU differ
        return f"{idle}."
    waited = f"{numbers['host_wait_of_idle']:.0%} of that because the next kernel was not launched yet"
    loading = f", and {numbers['data_of_idle']:.0%} while the host loaded data" if numbers["data_of_idle"] else ""
    return f"{idle}, {waited}{loading}."


def _queue(numbers: Mapping[str, float]) -> str:
    """The queue in words. It is good news only if nothing on the host costs much."""
    if np.isnan(numbers["mean_queue"]):
        return ""
    delayed = (
        f" {numbers['long_delays_of_kernels']:.0%} of the kernels began more than {LONG_DELAY_US:g} us after their"
    )
    told = f"{delayed} launch, and {numbers['mean_queue']:.1f} waited on average"
    on_the_gpu = (
        bound_by(numbers) in tables.KINDS and numbers["cost_of_data"] + numbers["cost_of_host"] < HIGH_HOST_COST
    )
    if on_the_gpu and numbers["long_delays_of_kernels"] > 0.5:
        return f"{told}: a full queue, not overhead."
    return f"{told}."
