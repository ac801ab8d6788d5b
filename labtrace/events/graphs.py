"""The ranges of kernels in CUDA graphs, by their annotations and by `Recording.twin`; the operators around calls."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.dialects import OPERATORS, RANGES
from labtrace.events.intervals import Nested
from labtrace.events.reading import Recording


def ranges_in_graphs(recording: Recording, work: pandas.DataFrame) -> tuple[pandas.DataFrame, np.ndarray]:
    """The ranges of each replay, which take no time, and for each row of `Rank.gpu_work` its place in them, or -1."""
    label, twin, begin = work["note"], recording.twin, work["call_begin"].fillna(work["begin"])
    if twin is not None:
        began = np.append(twin.operators["begin"], np.nan)[work["twin"]]
        label = label.mask(label == "", twin.nested_ranges.names_at(began, ""))
    table = pandas.DataFrame({"name": label, "begin": begin, "end": begin, "duration": 0.0, "tid": work["correlation"]})
    runs, place = table[label != ""].groupby(["tid", "name"], sort=False), np.full(len(work), -1)
    place[label != ""] = runs.ngroup()
    return runs.first().reset_index().assign(pid="graph", category=RANGES), place


def operators_around(operators: pandas.DataFrame, nested: Nested) -> np.ndarray:
    """For each row of `Rank.operators` the place of the innermost operator around it, or -1."""
    operator, outer = operators["category"].to_numpy() == OPERATORS, np.full(len(operators), -1)
    for rows, nesting in nested.threads:
        outer[rows] = np.append(rows, -1)[nesting.parent]
    while (calls := (outer >= 0) & ~operator[outer]).any():  # a call in a call
        outer[calls] = outer[outer[calls]]
    return outer
