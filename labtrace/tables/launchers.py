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
    host, kernels, named, twin = rank.launchers, rank.kernels, rank.named.operator, rank.recording.twin
    ours = np.append(operators_around(rank.operators, rank.nested_operators), -1)[kernels["call"]]
    place = np.where(named >= 0, named + len(rank.operators), ours)
    shapes = np.array([*map(shapes_of, rank.recording.inputs), ""], dtype=object)
    launchers = {
        "operator": np.append(host["name"], NOWHERE)[place],
        "inputs": shapes[np.append(host["inputs"], -1)[place]],
        "range": np.append(rank.ranges["name"], NOWHERE)[kernels["range"]],
    }
    for column, pattern in PLACES.items():
        launchers[column] = _python(rank, pattern, kernels["call"])
        if twin is not None:
            calls = rank.gpu_work["twin"]
            launchers[column] = np.where(calls >= 0, _python(twin, pattern, calls), launchers[column])
    by = kernels[["kind", "name", "duration"]].assign(**launchers).groupby(["kind", "name", *launchers])
    table = by["duration"].agg(count="size", total_us="sum", mean_us="mean").reset_index()
    table["share_of_busy"] = share(table["total_us"], rank.busy.length)
    return table.sort_values("total_us", ascending=False, kind="stable", ignore_index=True)


def _python(rank: Rank, pattern: str, calls: pandas.Series) -> np.ndarray:
    """The innermost of Python's functions that fit the pattern at each of these places in `Rank.operators`."""
    events = rank.recording.events
    python = events[(events["category"] == PYTHON) & matching(events["name"], pattern)].reset_index(drop=True)
    return Nested(python).names_at(np.append(rank.operators["begin"], np.nan)[calls])
