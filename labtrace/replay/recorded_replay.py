"""A recorded trace, played again with one thing changed: SIMULATED, but with durations that were measured.

We read from the recording the duration and the stream of every kernel, the host's time between one launch and the
next, and the waits, as far as they show: see `labtrace.tables.dependencies`. The pause between two kernels of a stream
is the mean of the recorded pauses.

The model leaves out some things. Where the host worked after a launch and then waited, this work counts as done after
the wait. Kernels that ran together keep their recorded durations, even if a change separates them. A kernel has no
other reasons to wait, such as the time a launch takes to reach the GPU. So compare a replay with the unchanged replay
of the same trace, and not with the trace itself: the result is a ratio.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import replace as with_changes

import numpy as np
import pandas

from labtrace.errors import LabError, check_at_least
from labtrace.events.dialects import OPERATORS
from labtrace.events.intervals import busy, innermost
from labtrace.events.rank import Rank
from labtrace.replay.launch_queue import GAP_US, QUEUE_LIMIT, Launch
from labtrace.replay.trace_file import GRAPH_US, Replay, Source
from labtrace.tables.communication import matched
from labtrace.tables.dependencies import FULL_QUEUE, Dependencies, dependencies, in_order

# The shares of the wall time by which an unchanged replay may differ from its recording without a warning, and at most.
WARN_ABOVE, REFUSE_ABOVE = 0.05, 0.2


class ReplayWarning(UserWarning):
    """An unchanged replay differs from its recording."""


def replay_rank(rank: Rank, host: float, kernels: float, graph: bool, data: float) -> Replay:
    """A rank, played again with something changed, and a warning if `replay_doubt` has one: see `Trace.what_if`."""
    recorded = read_launches(rank)
    if doubt := replay_doubt(rank, recorded.timeline.kernel_start, recorded.timeline.kernel_end):
        warnings.warn(doubt, ReplayWarning, stacklevel=3)
    check_at_least(0, host=host, kernels=kernels, data=data)
    launches = [
        with_changes(
            launch,
            host_us=host * (launch.host_us - launch.data_us) + data * launch.data_us,
            kernel_us=kernels * launch.kernel_us,
            data_us=data * launch.data_us,
        )
        for launch in recorded.launches
    ]
    played = with_changes(recorded, launches=launches)
    played, graph_us = (played.as_graphs(), GRAPH_US) if graph else (played, None)
    stamp = rank.recording.stamp or {}
    assumed = {
        "torch": stamp.get("torch", "unknown"),
        "made_from": stamp or {"file": rank.recording.file.name},
        "changed": {"host": host, "kernels": kernels, "graph": graph, "data": data},
        "constants": {"gap_us": played.gap_us, "queue_limit": played.queue_limit, "graph_us": graph_us},
    }
    return with_changes(played, assumed=assumed)


def replay_doubt(rank: Rank, begin: np.ndarray, end: np.ndarray) -> str:
    """Compares an unchanged replay with its recording: wall, busy and idle time of the GPU.

    Args:
        rank: the recording.
        begin, end: of the kernels in the replay.

    Returns:
        A sentence if one differs by more than `WARN_ABOVE` of the wall time, else "".

    Raises:
        LabError: one differs by more than `REFUSE_ABOVE` of it.
    """
    if rank.start == rank.stop:
        raise LabError(f"{rank.recording.file}: its kernels took no time at all, so there is nothing to gain.")
    wall, recorded_wall = float(np.max(end) - np.min(begin)), rank.stop - rank.start
    played, recorded = busy(begin, end), rank.busy.length
    pairs = {
        "wall": (wall, recorded_wall),
        "busy": (played, recorded),
        "idle": (wall - played, recorded_wall - recorded),
    }
    worst = max(pairs, key=lambda name: abs(pairs[name][0] - pairs[name][1]))
    apart = abs(pairs[worst][0] - pairs[worst][1]) / recorded_wall
    if apart <= WARN_ABOVE:
        return ""
    text = (
        f"{rank.recording.file}: played again without a change, the {worst} time is {pairs[worst][0]:,.0f} us, and in "
        f"the recording {pairs[worst][1]:,.0f} us ({apart:.0%} of the wall time)."
    )
    unknown = rank.kernels["call_begin"].isna().mean()
    cause = f" The launches of {unknown:.0%} of the kernels are not in the trace." if unknown > WARN_ABOVE else ""
    if apart > REFUSE_ABOVE:
        raise LabError(f"{text}{cause} So this trace cannot predict the effect of a change. See Trace.audit().")
    return f"{text}{cause} A predicted effect of a change is no more exact."


def warn_of(doubt: str) -> None:
    """Warns the caller of the public function that calls this, if there is a doubt."""
    if doubt:
        warnings.warn(doubt, ReplayWarning, stacklevel=3)


def read_launches(rank: Rank) -> Replay:
    """The launches of a recorded rank, unchanged and ready to be played.

    Raises:
        TraceError: there is no GPU activity, or no launch.
    """
    found = dependencies(rank)
    table = found.kernels
    free, made = found.host_times()
    data_us = rank.loading.covered(free, made)
    columns = zip(table["name"], made - free, table["duration"], table["stream"], found.after, data_us, strict=True)
    launches = [
        Launch(name, float(host), float(us), int(stream), waited, data_us=float(loading))
        for name, host, us, stream, waited, loading in columns
    ]
    gpu, (queue_limit, gap_us) = rank.recording.device.removeprefix("SIMULATED "), queue_settings(found)
    return Replay(launches, _sources(rank, table), found.waits, gpu, {}, gap_us=gap_us, queue_limit=queue_limit)


def queue_settings(found: Dependencies) -> tuple[int, float]:
    """The limit of the queue, and the pause between kernels of a stream, as far as the recording shows them."""
    table, deepest = found.kernels, int(found.depth.max())
    queue_limit = deepest if deepest >= FULL_QUEUE else QUEUE_LIMIT
    if table["call"].duplicated().any():
        queue_limit = len(table) + 1  # a graph is one entry of the queue
    if len(found.pauses):
        return queue_limit, float(np.mean(found.pauses))
    shortest = (table["begin"] - table.groupby("stream")["end"].shift()).min()  # none waited for the one before it
    return queue_limit, GAP_US if np.isnan(shortest) else min(GAP_US, max(0.0, float(shortest)))


def waits_for_ranks(rank: Rank, ranks: Collection[Rank]) -> np.ndarray | None:
    """How long a rank waited for others in each of its kernels, in the order of `in_order`, or None if unknown.

    All ranks leave a collective together, so the one that was in it for the shortest time did not wait.
    """
    if len(ranks) < 2 or not all(each.has_gpu and each.kernels["call_begin"].notna().any() for each in ranks):
        return None
    tables = {each: in_order(each) for each in ranks}
    every = matched({n: table[table["kind"] == "communication"] for n, table in enumerate(tables.values())})
    ours = every[every["rank"] == [*tables].index(rank)]
    if ours.empty:
        return None
    waits = np.zeros(len(tables[rank]))  # 0 in all but collectives
    waits[ours["place"]] = ours["duration"] - ours["shortest"]
    return waits


def _sources(rank: Rank, table: pandas.DataFrame) -> list[Source]:
    operators = rank.operators[rank.operators["category"] == OPERATORS].reset_index(drop=True)
    place = innermost(operators, table["call_begin"])
    names = np.append(operators["name"].to_numpy(dtype=object), "")[place]
    ranges = np.append(rank.ranges["name"].to_numpy(dtype=object), "")[table["range"]]
    columns = zip(table["call"], place, names, ranges, table["step"], strict=True)
    return [Source(int(call), int(number), name, inside, int(step)) for call, number, name, inside, step in columns]
