"""Time on the host by operator or CUDA call, with the GPU time of the work that each launched, and by range."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.dialects import OPERATORS, matching
from labtrace.events.graphs import operators_around
from labtrace.events.intervals import Nested, Nesting
from labtrace.events.rank import Rank
from labtrace.tables.gpu import share


def operators(rank: Rank) -> pandas.DataFrame:
    """One row a name of an operator or CUDA call."""
    every = times(rank)
    table = every.groupby(["name", "kind"])
    table = table.agg(
        count=("own", "size"),
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
    """`Rank.launchers` with these columns as well. Only work whose name contains the pattern `kernels` counts.

    | column | unit | meaning |
    |---|---|---|
    | kind | | "operator" or "CUDA call" |
    | own | microseconds | the host's time in it without its children |
    | own_gpu | microseconds | of the work on the GPU that it launched itself, an operator also through its calls |
    | all_gpu | microseconds | of that work and of the work that its children launched |
    """
    host = rank.launchers
    gpu = _gpu_time(rank, rank.gpu_work[matching(rank.gpu_work["name"], kernels)])
    outer = operators_around(rank.operators, rank.nested_operators)
    own, all_gpu = np.zeros(len(host)), np.zeros(len(host))
    again = [(rows + len(outer), nesting) for rows, nesting in Nested(rank.named.operators).threads]
    for rows, nesting in [*rank.nested_operators.threads, *again]:
        own[rows] = nesting.own_time()
        all_gpu[rows] = _with_children(nesting, gpu[rows])
    calls = np.flatnonzero((rank.operators["category"] != OPERATORS) & (outer >= 0))
    own_gpu = gpu + np.bincount(outer[calls], weights=gpu[calls], minlength=len(host))
    kind = host["category"].map({OPERATORS: "operator"}).fillna("CUDA call")
    replayed = host.index >= len(outer)  # no host called them again
    own[replayed], duration = 0.0, host["duration"].mask(replayed, 0.0)
    return host.assign(kind=kind, duration=duration, own=own, own_gpu=own_gpu, all_gpu=all_gpu)


def _gpu_time(rank: Rank, work: pandas.DataFrame) -> np.ndarray:
    """The GPU time of this work that each row of `Rank.launchers` launched itself.

    A kernel in a graph belongs to the operator that `Rank.named` has for it. Any other belongs to the call with its
    correlation. If that is not in the trace it belongs to the operator with its External id, unless this began after
    the kernel did: some versions number operators and calls independently.
    """
    host = rank.operators
    identified = host[(host["category"] == OPERATORS) & (host["external"] > 0)].drop_duplicates("external")
    places = pandas.Series(identified.index, identified["external"])
    by_id = work["external"].map(places).fillna(-1).astype(int).to_numpy()
    began = np.append(host["begin"].to_numpy(), np.inf)[by_id]
    place = np.where(work["call"] >= 0, work["call"], np.where(began <= work["begin"], by_id, -1))
    named = rank.named.operator[work.index]
    place = np.where(named >= 0, named + len(host), place)
    known = place >= 0
    return np.bincount(place[known], weights=work["duration"][known], minlength=len(rank.launchers))


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
