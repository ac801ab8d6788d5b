"""The chain of events that determines the wall time of a recording, through host and GPU.

We walk back from the end of the last kernel. A kernel begins at the last of these events: its launch is made, the
previous kernel of its stream ends, or a kernel of another stream ends that it waits for. A launch is made after
the host's work since its last wait. There are two such waits: for a kernel to end, in a call that synchronises, and for
a kernel to begin, with a full queue.
`labtrace.tables.dependencies` reads these waits from the recording.

The idea is that of HTA's critical path (https://hta.readthedocs.io, "Lightweight Critical Path Analysis"). HTA's path
runs through one step as the host sees it, and operators on the path follow the threads. Here the path covers the time
from the first to the last GPU activity, as every table of `labtrace.Trace` does, and there is one host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas

from labtrace.events.dialects import fine_kinds
from labtrace.events.host import DATA
from labtrace.events.rank import Rank
from labtrace.tables.dependencies import Dependencies, dependencies
from labtrace.tables.gpu import KERNEL_WAIT_US, share

HOST, GPU, BETWEEN = "host", "GPU", "between"
LATENCY, PAUSE, UNKNOWN = "launch latency", "pause between kernels", "unknown wait"
LAUNCHED, WAITED, FOLLOWED = range(3)  # reasons for a kernel to begin: of two at the same time the last one counts


class Piece(NamedTuple):
    """A part of the path.

    `kernel` is a place in `Dependencies.kernels`, or -1 for the host. `what` is "" until its kind is known.
    """

    begin: float
    end: float
    where: str
    what: str
    kernel: int


def critical_path(rank: Rank) -> pandas.DataFrame:
    """The table that `labtrace.Trace.critical_path` explains."""
    table = segments(rank).groupby(["where", "what", "name"])["us"].agg(us="sum", events="size").reset_index()
    table.insert(4, "share_of_wall", share(table["us"], rank.stop - rank.start))
    return table.sort_values("us", ascending=False, ignore_index=True)


def segments(rank: Rank) -> pandas.DataFrame:
    """The path from the first GPU activity to the end of the last, in parts that follow each other without a gap.

    | column | unit | meaning |
    |---|---|---|
    | begin_us, us | microseconds | |
    | where, what | | as in `labtrace.Trace.critical_path` |
    | name | | of the kernel or, on the host, of the innermost operator or call |

    Raises:
        TraceError: there is no GPU activity, or no launch.
    """
    found = dependencies(rank)
    path = pandas.DataFrame(list(_walk_back(rank, found))[::-1], columns=list(Piece._fields))
    path = path[path["end"] > path["begin"]]
    on_host = path["where"] == HOST
    path = pandas.concat([_by_work_of_the_host(rank, path[on_host]), path[~on_host]]).sort_values(
        "begin", kind="stable", ignore_index=True
    )
    on_gpu = path["where"] == GPU
    kinds, names = fine_kinds(found.kernels).to_numpy(), found.kernels["name"].to_numpy()
    path.loc[on_gpu, "what"] = kinds[path["kernel"][on_gpu]]
    path.loc[on_gpu, "name"] = names[path["kernel"][on_gpu]]
    path["name"] = path["name"].fillna(path["what"])
    path = path.rename(columns={"begin": "begin_us"}).assign(us=path["end"] - path["begin"])
    return path[["begin_us", "us", "where", "what", "name"]]


def _walk_back(rank: Rank, found: Dependencies) -> Iterator[Piece]:
    """The parts of the path, the last one first. Some are empty."""
    table = found.kernels
    start, begin, end = rank.start, table["begin"].tolist(), table["end"].tolist()
    before = table.index.to_series().groupby(table["stream"]).shift(fill_value=-1).tolist()  # of the same stream
    usual_pause = float(np.median(found.pauses)) if len(found.pauses) else 0.0
    launched = found.made.copy()
    launched[table["sharing"].isna()] = -np.inf  # the launch is not in the trace
    waits = sorted(found.delays.items())
    copies = [position for position, (other, _) in waits if other == position]  # whose call waited for their end
    launched[copies] = np.minimum(launched, table["call_begin"] + table["call_duration"].median())[copies]
    launches = launched.tolist()
    waiting = np.array([position for position, _ in waits], dtype=int)
    kernel, now = end.index(max(end)), rank.stop  # we are at a kernel, at a time when it runs or has just ended
    running = True
    while now > start:
        if running:
            since = min(now, begin[kernel])
            yield Piece(max(start, since), now, GPU, "", kernel)
            now = since
        # Why did it begin?
        causes = [(min(now, launches[kernel]), LAUNCHED, -1)]
        causes += [(min(now, end[other]), WAITED, other) for other in found.after[kernel]]
        if before[kernel] >= 0:
            causes.append((min(now, end[before[kernel]] + usual_pause), FOLLOWED, before[kernel]))
        _, reason, other = max(causes)
        cause = max(start, min(now, launches[kernel] if reason == LAUNCHED else end[other]))
        pause = LATENCY if reason == LAUNCHED else PAUSE
        yield Piece(cause, now, BETWEEN, pause if now - cause < KERNEL_WAIT_US else UNKNOWN, -1)
        now = cause
        if reason != LAUNCHED:
            kernel, running = other, True
            continue
        # Why was it launched only then? The host worked since its last wait.
        place = np.searchsorted(waiting, kernel) - 1
        if place < 0:
            yield Piece(start, now, HOST, "", -1)
            return
        kernel, running = waits[place][1]
        cause = min(now, end[kernel] if running else begin[kernel])
        yield Piece(max(start, cause), now, HOST, "", -1)
        now = cause


def _by_work_of_the_host(rank: Rank, path: pandas.DataFrame) -> pandas.DataFrame:
    """The parts of the path on the host, divided where the host loads data, or another range or operator begins."""
    host, ranges, loading = rank.operators, rank.ranges, rank.loading
    edges = [host["begin"], host["end"], ranges["begin"], ranges["end"], loading.begin, loading.end]
    instants = np.unique(np.concatenate([*edges, path["begin"], path["end"]]))
    begin, end = instants[:-1], instants[1:]
    part = np.searchsorted(path["begin"], begin, side="right") - 1  # parts follow each other, with gaps
    inside = (part >= 0) & (end <= np.append(path["end"].to_numpy(), -np.inf)[part])
    begin, end = begin[inside], end[inside]
    middle = (begin + end) / 2
    what = rank.nested_ranges.names_at(middle, "outside of ranges")
    what = np.where(loading.covered(begin, end) > 0, DATA, what)
    name = rank.nested_operators.names_at(middle)
    pieces = pandas.DataFrame({"begin": begin, "end": end, "where": HOST, "what": what, "name": name, "kernel": -1})
    # Neighbours of the same work are one part.
    new = (pieces[["what", "name"]] != pieces[["what", "name"]].shift()).any(axis=1) | (begin != pieces["end"].shift())
    parts = pieces.groupby(new.cumsum()).agg(
        {"begin": "first", "end": "last", **dict.fromkeys(("where", "what", "name", "kernel"), "first")}
    )
    return parts.reset_index(drop=True)
