"""What launched the kernels in CUDA graphs, as far as it is known: by their annotations, and by `Recording.twin`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events.dialects import OPERATORS, RANGES
from labtrace.events.intervals import Nested
from labtrace.events.reading import Recording


def joined(own: pandas.DataFrame, others: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of both, or the same table if there are no others."""
    return pandas.concat([own, others], ignore_index=True) if len(others) else own


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


def named(recording: Recording, work: pandas.DataFrame) -> Named:
    """What launched each row of `Rank.gpu_work`."""
    twin, label, operators, operator = recording.twin, work["note"], recording.events[:0], np.full(len(work), -1)
    if twin is not None:
        calls, around = work["twin"].to_numpy(), np.append(operators_around(twin.operators, twin.nested_operators), -1)
        began = np.append(twin.operators["begin"], np.nan)[calls]
        label = label.mask(label == "", twin.nested_ranges.names_at(began, ""))
        levels, first = [around[calls]], len(around) * pandas.factorize(work["correlation"])[0]
        while (levels[-1] >= 0).any():
            levels.append(around[levels[-1]])
        keys = [np.where(level >= 0, first + level, -1) for level in levels]  # of an operator in a replay
        of_replay = np.unique(keys)[1:]
        operator = np.where(keys[0] >= 0, np.searchsorted(of_replay, keys[0]), -1)
        operators = twin.operators.iloc[of_replay % len(around)].assign(pid=of_replay // len(around), external=-1)
        earlier = len(recording.inputs) - len(twin.recording.inputs)
        operators["inputs"] += np.where(operators["inputs"] >= 0, earlier, 0)
    begin = work["call_begin"].fillna(work["begin"])
    table = pandas.DataFrame({"name": label, "begin": begin, "end": begin, "duration": 0.0, "tid": work["correlation"]})
    runs, place = table[label != ""].groupby(["tid", "name"], sort=False), np.full(len(work), -1)
    place[label != ""] = runs.ngroup()
    ranges = runs.first().reset_index().assign(pid="graph", category=RANGES)
    return Named(operators.reset_index(drop=True), operator, ranges, place)


def operators_around(operators: pandas.DataFrame, nested: Nested) -> np.ndarray:
    """For each row of `Rank.operators` the place of the innermost operator around it, or -1."""
    operator, outer = operators["category"].to_numpy() == OPERATORS, np.full(len(operators), -1)
    for rows, nesting in nested.threads:
        outer[rows] = np.append(rows, -1)[nesting.parent]
    while (calls := (outer >= 0) & ~operator[outer]).any():  # a call in a call
        outer[calls] = outer[outer[calls]]
    return outer
