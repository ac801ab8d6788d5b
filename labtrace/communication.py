"""Communication between ranks: how long it took, how much of it was hidden under other work, and who was waited for.

On a GPU these are NCCL's kernels and their like. On a CPU gloo works in threads of its own, in which the profiler names
its ranges "gloo:all_reduce" and so on. Either contains the wait for the last rank to join.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas

from labtrace.intervals import Union
from labtrace.rank import Rank

GLOO, SENDS = "gloo:", "c10d::"  # gloo's ranges; PyTorch's operators that only hand the data over to it


def communication(rank: Rank) -> pandas.DataFrame:
    """One row, without the columns that compare ranks."""
    own = collectives(rank)
    begin, end, others = _on_cpu(rank) if rank.on_cpu else _on_gpu(rank)
    wall = float(np.sum(end - begin))
    work, sent = Union(others["begin"], others["end"]), Union(own["begin"], own["end"])
    both = Union([*others["begin"], *own["begin"]], [*others["end"], *own["end"]])
    compute, busy, sending = (float(np.sum(union.covered(begin, end))) for union in (work, both, sent))
    exposed = busy - compute
    if own.empty and rank.world_size > 1:  # it sends in a way that we do not know, or not in these steps
        sending = exposed = np.nan
    row = {"wall_us": wall, "compute_us": compute, "communication_us": sending, "hidden_us": sending - exposed}
    return pandas.DataFrame([{**row, "exposed_us": exposed, "share_of_wall": exposed / (wall or np.nan)}])


def collectives(rank: Rank) -> pandas.DataFrame:
    """The communication of a rank, in the order it began: begin, end and duration."""
    if rank.on_cpu:
        events = rank.recording.events
        begin, end = _steps(rank)
        found = events[events["name"].str.startswith(GLOO) & _inside(events, begin, end)]
    else:
        found = rank.kernels[rank.kernels["kind"] == "communication"]
    return found.sort_values("begin", kind="stable", ignore_index=True)[["begin", "end", "duration"]]


def waited_us(ranks: Mapping[int, Rank]) -> dict[int, float]:
    """How much longer each rank was in its collectives than the one that was in them least, NaN if it is unknown.

    All ranks leave a collective together, so who is in it for the shortest time came last, and did not wait. It is
    unknown if there is only one rank, or if the ranks have different numbers of collectives, or none.
    """
    durations = [collectives(rank)["duration"].to_numpy() for rank in ranks.values()]
    counts = {len(each) for each in durations}
    if len(ranks) < 2 or len(counts) > 1 or counts == {0}:
        return dict.fromkeys(ranks, np.nan)
    waited = np.stack(durations)
    return dict(zip(ranks, (waited - waited.min(axis=0)).sum(axis=1).tolist(), strict=True))


def _on_gpu(rank: Rank) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Begin and end of the wall time, and the kernels, copies and memsets in it that are no communication."""
    kernels = rank.kernels
    return np.array([rank.start]), np.array([rank.stop]), kernels[kernels["kind"] != "communication"]


def _on_cpu(rank: Rank) -> tuple[np.ndarray, np.ndarray, pandas.DataFrame]:
    """Begins and ends of the steps, and the operators of PyTorch in them that do not communicate."""
    begin, end = _steps(rank)
    operators = rank.operators[~rank.operators["name"].str.startswith((GLOO, SENDS))]
    return begin, end, operators[_inside(operators, begin, end)]


def _steps(rank: Rank) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of the recorded steps, or of the whole recording if no step is marked."""
    times = rank.steps if len(rank.steps) else rank.recording.events
    union = Union(times["begin"], times["end"])
    return (union.begin, union.end) if len(rank.steps) else (union.begin[:1], union.end[-1:])


def _inside(events: pandas.DataFrame, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which events began between a `begin` and its `end`."""
    place = np.searchsorted(begin, events["begin"].to_numpy(), side="right") - 1
    return (place >= 0) & (events["begin"].to_numpy() < end[place])
