"""What launched each kernel: its operator, shapes, range, module and line, also inside of CUDA graphs."""

from __future__ import annotations

import numpy as np
import pandas

from labtrace.events.dialects import matching
from labtrace.events.graphs import operators_around
from labtrace.events.host import PYTHON
from labtrace.events.intervals import NOWHERE, Nested
from labtrace.events.rank import Rank
from labtrace.tables.achieved import shapes_of
from labtrace.tables.gpu import share

# Among Python's functions: modules, which have names of their own, and lines, but for PyTorch's and Triton's.
PLACES = {"module": r"^nn\.Module: ", "line": r"^(?!(?:.*/)?(?:torch|triton)/).*\.py\(\d+\)"}


def kernels_by_operator(rank: Rank) -> pandas.DataFrame:
    """One row a kernel name and what launched it."""
    kernels, twin = rank.kernels, rank.recording.twin
    found = launchers(rank, kernels["call"])
    if twin is not None:
        found = found.where(rank.gpu_work["twin"] < 0, launchers(twin, rank.gpu_work["twin"]))
    found.insert(2, "range", np.append(rank.ranges["name"], NOWHERE)[kernels["range"]])
    table = kernels[["kind", "name", "duration"]].join(found).groupby(["kind", "name", *found])
    table = table["duration"].agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["share_of_busy"] = share(table["total_us"], rank.busy.length)
    return table.sort_values("total_us", ascending=False, kind="stable", ignore_index=True)


def launchers(rank: Rank, calls: pandas.Series) -> pandas.DataFrame:
    """What is around each of these places in `Rank.operators`: operator, inputs, module and line; -1 is no place."""
    host, events = rank.operators, rank.recording.events
    operator = np.append(operators_around(host, rank.nested_operators), -1)[calls]
    shapes = np.array([*map(shapes_of, rank.recording.inputs), ""], dtype=object)
    found = {"operator": np.append(host["name"], NOWHERE)[operator]}
    found["inputs"] = shapes[np.append(host["inputs"], -1)[operator]]
    for column, pattern in PLACES.items():
        python = events[(events["category"] == PYTHON) & matching(events["name"], pattern)].reset_index(drop=True)
        found[column] = Nested(python).names_at(np.append(host["begin"], np.nan)[calls])
    return pandas.DataFrame(found, calls.index)
