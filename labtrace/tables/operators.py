"""Time on the host by operator or CUDA call, with the GPU time of the work that each launched, and by range."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.dialects import OPERATORS, matching
from labtrace.events.graphs import operators_around
from labtrace.events.intervals import Nesting
from labtrace.events.rank import Rank
from labtrace.tables.gpu import share


def operators(rank: Rank) -> pandas.DataFrame:
    """One row a name of an operator or CUDA call."""
    every = times(rank).dropna(subset="count").astype({"count": int})
    table = every.groupby(["name", "kind"])
    table = table.agg(
        count=("count", "sum"),
        self_us=("own", "sum"),
        total_us=("duration", "sum"),
        gpu_self_us=("own_gpu", "sum"),
        gpu_total_us=("all_gpu", "sum"),
    ).reset_index()
    if not (every["own_gpu"] > 0).any():
        table[["gpu_self_us", "gpu_total_us"]] = np.nan
    table.insert(5, "share_of_self", share(table["self_us"], table["self_us"].sum()))
    return table.sort_values("self_us", ascending=False, ignore_index=True)


def times(rank: Rank, kernels: str = "") -> pandas.DataFrame:
    """`Rank.operators` with these columns as well. Only work whose name contains the pattern `kernels` counts.

    Then come those of `Recording.twin`, as often as replays launched them again, without time of the host.

    | column | unit | meaning |
    |---|---|---|
    | kind | | "operator" or "CUDA call" |
    | count | | 1, or the replays, NaN without a kernel in them |
    | own | microseconds | the host's time in it without its children |
    | own_gpu | microseconds | of the work on the GPU that it launched itself, an operator also through its calls |
    | all_gpu | microseconds | of that work and of the work that its children launched |
    """
    work, twin = rank.gpu_work[matching(rank.gpu_work["name"], kernels)], rank.recording.twin
    if twin is None:
        return _times(rank, _gpu_time(rank, work)).assign(count=1)
    ours, named = work[work["twin"] < 0], work[work["twin"] >= 0]
    again, launched = (np.bincount(named["twin"], us, len(twin.operators)) for us in (named["duration"], None))
    replayed, replays, calls = (_times(twin, gpu) for gpu in (again, launched, launched > 0))
    earlier = np.where(replayed["inputs"] >= 0, len(rank.recording.inputs) - len(twin.recording.inputs), 0)
    replayed = replayed.assign(own=0.0, duration=0.0, inputs=replayed["inputs"] + earlier)
    replayed["count"] = (replays["all_gpu"] / calls["all_gpu"]).where(replayed["kind"] == "operator")
    return pandas.concat([_times(rank, _gpu_time(rank, ours)).assign(count=1), replayed], ignore_index=True)


def _times(rank: Rank, gpu: np.ndarray) -> pandas.DataFrame:
    """`times` of a rank's own operators, which themselves launched work of this GPU time."""
    host, outer = rank.operators, operators_around(rank.operators, rank.nested_operators)
    own, all_gpu = np.zeros(len(host)), np.zeros(len(host))
    for rows, nesting in rank.nested_operators.threads:
        own[rows] = nesting.own_time()
        all_gpu[rows] = _with_children(nesting, gpu[rows])
    calls = np.flatnonzero((host["category"] != OPERATORS) & (outer >= 0))
    own_gpu = gpu + np.bincount(outer[calls], weights=gpu[calls], minlength=len(host))
    kind = np.where(host["category"] == OPERATORS, "operator", "CUDA call")
    return host.assign(kind=kind, own=own, own_gpu=own_gpu, all_gpu=all_gpu)


def _gpu_time(rank: Rank, work: pandas.DataFrame) -> np.ndarray:
    """The GPU time of this work that each row of `rank.operators` launched itself.

    A kernel belongs to the call with its correlation. If that is not in the trace it belongs to the operator with its
    External id, unless this began after the kernel did: some versions number operators and calls independently.
    """
    host = rank.operators
    identified = host[(host["category"] == OPERATORS) & (host["external"] > 0)].drop_duplicates("external")
    places = pandas.Series(identified.index, identified["external"])
    by_id = work["external"].map(places).fillna(-1).astype(int).to_numpy()
    began = np.append(host["begin"].to_numpy(), np.inf)[by_id]
    place = np.where(work["call"] >= 0, work["call"], np.where(began <= work["begin"], by_id, -1))
    known = place >= 0
    return np.bincount(place[known], weights=work["duration"][known], minlength=len(host))


def _with_children(nesting: Nesting, times: np.ndarray) -> np.ndarray:
    """The sum of the times of each interval and of all those in it."""
    order = np.lexsort((-nesting.end, nesting.begin))
    so_far = np.concatenate([[0.0], np.cumsum(times[order])])
    first = np.arange(len(order))
    last = np.searchsorted(nesting.begin[order], nesting.end[order], side="left")
    total = np.empty(len(order))
    total[order] = so_far[np.maximum(last, first + 1)] - so_far[first]
    return total


def ranges(rank: Rank) -> pandas.DataFrame:
    """One row a range, in the order they first began."""
    in_order = rank.ranges.sort_values("begin").groupby("name", sort=False)["duration"]
    table = in_order.agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["us_per_step"] = table["total_us"] / (len(rank.steps) or np.nan)
    return table.rename(columns={"name": "range"})
