"""Names inside a CUDA graph: each kernel of a replay with the call that launched its twin, in a recording of launches.

A replay is one call, so the kernels in it have no operators. The same kernels have, in a recording of the capture or of
the same training launch by launch. Both are sequences of names, and their global alignment tells the twins. (Needleman
and Wunsch, 1970: a pair of equal names is worth 2, a pair of others and a gap cost 1 each. Taking the longest equal
stretch first, as difflib does, shifts a network of equal blocks by a block: of kernels of which 3 % were taken out, it
named 42 % rightly, and the alignment 99 %.)
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.dialects import GPU_WORK, GRAPH_LAUNCHES, OPERATORS, RANGES, matching
from labtrace.events.intervals import innermost

if TYPE_CHECKING:
    from labtrace.events.rank import Rank
    from labtrace.events.reading import Recording


def joined(own: pandas.DataFrame, others: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of both, or the same table if there are no others."""
    return pandas.concat([own, others], ignore_index=True) if len(others) else own


def in_graph(rank: Rank) -> pandas.Series:
    """Which rows of `Rank.gpu_work` a graph launched, also one whose launch is not in the recording."""
    work = rank.gpu_work
    graphs = rank.operators.index[matching(rank.operators["name"], GRAPH_LAUNCHES)]
    lost = (work["call"] < 0) & (work["correlation"] > 0) & work["correlation"].duplicated(keep=False)
    return work["call"].isin(graphs) | lost


def named_by(rank: Rank, other: Rank) -> Recording:
    """The recording of a rank, with the `twins` of its kernels in graphs.

    Raises:
        TraceError: no kernel of a graph has a twin.
    """
    events, found = rank.recording.events, twins(rank, other)
    if (found < 0).all():
        raise TraceError(
            f"{rank.recording.file}: {other.recording.file} launches no kernel of a CUDA graph in it. Record the same "
            "training launch by launch, with the same batch and precision or, on an AMD GPU, the graph's capture."
        )
    order = events.index[events["category"].isin(GPU_WORK)]
    twin = pandas.Series(found, events["begin"][order].sort_values(kind="stable").index)  # as in Rank.gpu_work
    events = events.assign(twin=twin.reindex(events.index, fill_value=-1))
    return replace(rank.recording, events=events, inputs=[*rank.recording.inputs, *other.recording.inputs], twin=other)


def twins(rank: Rank, other: Rank) -> np.ndarray:
    """For each row of `Rank.gpu_work` the place in `other.operators` of the call that launched its twin, or -1.

    The twin is in a capture whose launches name their kernels, as AMD's do, or else among the kernels that `other`
    launched one by one. Of several captures or steps the one whose names are most alike counts, of equal ones each in
    its turn: the graphs of equal layers are replayed in the order in which they were captured.
    """
    calls, captures, work = other.operators, other.captures, rank.gpu_work[in_graph(rank)]
    part, unit = np.searchsorted(captures.begin, calls["begin"], side="right") - 1, -2 - work["correlation"]
    inside = (calls["note"] != "") & (calls["begin"] < np.append(captures.end, -np.inf)[part])
    launches = pandas.DataFrame({"name": calls["note"], "call": calls.index, "part": part})[inside]
    if launches.empty:
        launches = other.gpu_work[~in_graph(other)].query("call >= 0").sort_values(["call_begin", "begin"])
        launches["part"] = innermost(other.steps, launches["call_begin"])
        step = innermost(rank.steps, work["call_begin"])  # it may hold several graphs
        if len(other.steps):
            launches, unit = launches[launches["part"] >= 0], unit.where(step < 0, step)
    parts = [(tuple(each["name"]), each["call"].to_numpy()) for _, each in launches.groupby("part")]
    found, turn = np.full(len(rank.gpu_work), -1), -1
    for _, kernels in work.groupby(unit, sort=False) if parts else ():
        names = tuple(kernels["name"])
        alike = [(Counter(names) & Counter(theirs)).total() / (len(names) + len(theirs)) for theirs, _ in parts]
        turn = min(np.flatnonzero(np.equal(alike, max(alike))).tolist(), key=lambda one: (one <= turn, one))
        found[kernels.index] = np.append(parts[turn][1], -1)[aligned(names, parts[turn][0])]
    return found


class Named(NamedTuple):
    """What launched the kernels in graphs, as far as it is known.

    Attributes:
        operators: of each replay the operators around its twins' calls. They have the times of the twins' host, and the
            replay as their process.
        operator: for each row of `Rank.gpu_work` the place in `operators` of the innermost of them, or -1.
        ranges: of each replay the ranges around these calls, or of its kernels' annotations. They take no time.
        range: for each row of `Rank.gpu_work` the place in `ranges`, or -1.
    """

    operators: pandas.DataFrame
    operator: np.ndarray
    ranges: pandas.DataFrame
    range: np.ndarray


def named(rank: Rank) -> Named:
    """What launched the kernels in graphs, by their annotations and by `Recording.twin`."""
    work, twin = rank.gpu_work, rank.recording.twin
    label, operators, operator = work["note"], rank.operators[:0], np.full(len(work), -1)
    if twin is not None:
        calls, around = work["twin"].to_numpy(), np.append(operators_around(twin), -1)
        began = np.append(twin.operators["begin"], np.nan)[calls]
        label = label.mask(label == "", twin.nested_ranges.names_at(began, ""))
        levels, first = [around[calls]], len(around) * pandas.factorize(work["correlation"])[0]
        while (levels[-1] >= 0).any():
            levels.append(around[levels[-1]])
        keys = [np.where(level >= 0, first + level, -1) for level in levels]  # of an operator in a replay
        of_replay = np.unique(keys)[1:]
        operator = np.where(keys[0] >= 0, np.searchsorted(of_replay, keys[0]), -1)
        operators = twin.operators.iloc[of_replay % len(around)].assign(pid=of_replay // len(around), external=-1)
        earlier = len(rank.recording.inputs) - len(twin.recording.inputs)
        operators["inputs"] += np.where(operators["inputs"] >= 0, earlier, 0)
    begin = work["call_begin"].fillna(work["begin"])
    table = pandas.DataFrame({"name": label, "begin": begin, "end": begin, "duration": 0.0, "tid": work["correlation"]})
    runs, place = table[label != ""].groupby(["tid", "name"], sort=False), np.full(len(work), -1)
    place[label != ""] = runs.ngroup()
    ranges = runs.first().reset_index().assign(pid="graph", category=RANGES)
    return Named(operators.reset_index(drop=True), operator, ranges, place)


def operators_around(rank: Rank) -> np.ndarray:
    """For each row of `Rank.operators` the place of the innermost operator around it, or -1."""
    operator, outer = rank.operators["category"].to_numpy() == OPERATORS, np.full(len(rank.operators), -1)
    for rows, nesting in rank.nested_operators.threads:
        outer[rows] = np.append(rows, -1)[nesting.parent]
    while (calls := (outer >= 0) & ~operator[outer]).any():  # a call in a call
        outer[calls] = outer[outer[calls]]
    return outer


@functools.lru_cache
def aligned(ours: tuple[str, ...], theirs: tuple[str, ...]) -> np.ndarray:
    """For each of our names the place of its twin, which has the same name, or -1."""
    if ours == theirs:
        return np.arange(len(ours))
    mine, others = np.split(pandas.factorize(pandas.Series(ours + theirs))[0], [len(ours)])
    twin = np.full(len(mine), -1)
    worth = np.where(mine[:, None] == others, np.int8(2), np.int8(-1))
    gaps = np.arange(len(others) + 1)
    score = np.zeros((len(mine) + 1, len(gaps)), dtype=np.int32)  # of each beginning of ours with each of theirs
    score[0] = -gaps
    for row, pairs in enumerate(worth):
        best = score[row] - 1
        best[1:] = np.maximum(best[1:], score[row, :-1] + pairs)
        score[row + 1] = np.maximum.accumulate(best + gaps) - gaps
    row, column = worth.shape
    while row and column:
        if score[row, column] == score[row - 1, column - 1] + worth[row - 1, column - 1]:
            row, column = row - 1, column - 1
            twin[row] = column if worth[row, column] > 0 else -1
        elif score[row, column] == score[row - 1, column] - 1:
            row -= 1
        else:
            column -= 1
    return twin
