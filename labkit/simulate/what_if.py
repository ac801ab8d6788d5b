"""A recorded trace, played again with one thing changed: SIMULATED, but with durations that were measured.

From the recording come every kernel's duration and stream, the host's time between one launch and the next, and who
waited for whom, as far as it shows:

- The host is one, whichever of its threads made a call. A launch takes effect when its call ends, or when its kernel
  begins if that is earlier.
- The host waited in a call that waits, if all that was launched before had ended when the call did. In a call that
  found the queue full it waited, too.
- A kernel waited for another stream if it was launched and its own stream was idle when a kernel of that stream
  ended, and it began just after.
- Kernels of one stream pause between each other as long as they did on average.

What the model leaves out: a wait for one stream while others go on counts as the host's work; kernels that ran together
keep the durations they then had, also where a change parts them; and what else kept a kernel waiting, such as its
launch's way to the GPU or multiprocessors that were all taken, does not exist. So compare a replay with the unchanged
replay of the same trace, not with the trace itself: the result is a ratio.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes

import numpy as np
import pandas

from labkit.errors import LabkitError
from labkit.simulate.launch_queue import GAP_US, KERNEL_WAIT_US, QUEUE_LIMIT, Launch, play
from labkit.simulate.replay import GRAPH_US
from labkit.simulate.trace_file import Replay, Source
from labkit.traces.ranks import Rank, innermost
from labkit.traces.trace import Trace

WAITING_CALLS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")
WAITING_COPIES = "Pageable"  # the host's memory is not pinned: such a copy's call may wait until it is done
CLOCKS_US = 1.0  # how much the clocks of host and GPU may disagree
JUST_AFTER_US = 5.0  # so soon after what it waited for a kernel begins
FULL_QUEUE = 1000  # launches waiting in one stream: about QUEUE_LIMIT, which differs a little between devices


@dataclass(frozen=True)
class Recorded:
    """What the model is given: the launches in their order, and the positions after which the host waited."""

    launches: Sequence[Launch]
    sources: Sequence[Source]
    synchronise: Collection[int]
    gap_us: float
    queue_limit: int


def replay_recorded(
    trace: Trace, host: float = 1.0, kernels: float | Mapping[str, float] = 1.0, graph: bool = False
) -> Replay:
    """Plays a recorded trace again, as it was or with something changed.

    `replay_recorded(trace, host=0.5).timeline.wall / replay_recorded(trace).timeline.wall` is the share of the time
    that a host of twice the speed would need. What the model leaves out is told in `labkit.simulate.what_if`.

    Args:
        trace: of one rank, with host and GPU.
        host: a factor on the host's time, but not on its waits.
        kernels: a factor on the durations of all kernels; or factors by text, each for the kernels whose name
            contains the text, such as {"gemm": 0.5, "Memcpy": 0.0}.
        graph: whether one call launches each step, as a CUDA graph. Of the host's time in a step, loading data and
            waits in the middle included, nothing remains but this call.

    Raises:
        TraceError: the trace holds no GPU activity.
        LabkitError: the trace is of several ranks, or holds no launches or, for a graph, no steps; or a text is in no
            kernel's name.
    """
    if len(trace.ranks) > 1:
        raise LabkitError(f"This trace is of {len(trace.ranks)} ranks, a replay of one: open the file of one rank.")
    (rank,) = trace.ranks.values()
    recorded = read_launches(rank)
    factors = kernels if isinstance(kernels, Mapping) else {"": kernels}
    recorded = with_changes(recorded, launches=_faster(recorded.launches, host, factors))
    if graph:
        recorded = _as_graphs(recorded)
    timeline = play(recorded.launches, recorded.synchronise, recorded.queue_limit, recorded.gap_us)
    assumed = {
        "made_from": trace.stamp or {"file": rank.recording.file.name},
        "changed": {"host": host, "kernels": dict(factors), "graph": graph},
        "constants": {
            "gap_us": recorded.gap_us,
            "queue_limit": recorded.queue_limit,
            "graph_us": GRAPH_US if graph else None,
        },
    }
    waits = sorted(recorded.synchronise)
    return Replay(recorded.launches, recorded.sources, timeline, waits, _device(trace, rank), assumed)


def read_launches(rank: Rank) -> Recorded:
    """The launches that a rank recorded, such that they play as they were.

    Raises:
        TraceError: there is no GPU activity.
        LabkitError: there are no launches.
    """
    table = _in_order(rank)
    depth = _depth_at_call(table)
    queue_limit = int(depth.max()) if depth.max() >= FULL_QUEUE else QUEUE_LIMIT
    waits = _waits(rank, table)
    blocked = (depth >= FULL_QUEUE) | (table.index.isin(waits) & table["name"].str.contains(WAITING_COPIES))
    # Two times of each launch: when the host would have made it without a wait in the call, and when it went on.
    went_on = np.minimum(table["call_end"], table.groupby("call")["begin"].transform("min")).to_numpy(copy=True)
    typical = table["call_duration"][~blocked].median()
    made = np.where(blocked, table["call_begin"] + table["call_duration"].clip(upper=typical), went_on)
    for position in waits:
        went_on[position] = max(went_on[position], table["end"][: position + 1].max())
    went_on = np.maximum.accumulate(went_on)
    host_us = np.maximum(0.0, made - np.concatenate([table["call_begin"][:1], went_on[:-1]]))
    after, pauses = _waits_for_streams(table, made)
    columns = zip(table["name"], host_us, table["duration"], table["stream"], after, strict=True)
    launches = [Launch(name, float(host), float(us), int(stream), waited) for name, host, us, stream, waited in columns]
    if table["call"].duplicated().any():
        queue_limit = len(table) + 1  # a graph is one entry of the queue
    gap_us = float(np.mean(pauses)) if len(pauses) else GAP_US
    return Recorded(launches, _sources(rank, table), waits, gap_us, queue_limit)


def _in_order(rank: Rank) -> pandas.DataFrame:
    """The kernels in the order of their launches, with `call_end`, and the same `call` where one call launched them.

    A kernel whose launch is not in the trace counts as launched when it began.
    """
    table = rank.kernels
    unknown = table["call_begin"].isna()
    if unknown.all():
        raise LabkitError(
            f"{rank.recording.file}: no launch of any kernel in this trace, so it cannot be replayed. Record the host, "
            "too: ProfilerActivity.CPU, as labkit.record does."
        )
    table = table.assign(
        call_begin=table["call_begin"].fillna(table["begin"]),
        call_duration=table["call_duration"].fillna(0.0),
        call=table["correlation"].where(~unknown, -1 - table.index),
    ).sort_values(["call_begin", "begin"], kind="stable", ignore_index=True)
    return table.assign(call_end=table["call_begin"] + table["call_duration"], call=pandas.factorize(table["call"])[0])


def _depth_at_call(table: pandas.DataFrame) -> np.ndarray:
    """How many kernels of the same stream were launched and not started when each call began."""
    depth = np.zeros(len(table), dtype=int)
    for _, mine in table.groupby("stream"):
        started = np.searchsorted(np.sort(mine["begin"]), mine["call_begin"], side="right")
        depth[mine.index] = np.maximum(0, np.arange(len(mine)) - started)
    return depth


def _waits(rank: Rank, table: pandas.DataFrame) -> set[int]:
    """The positions of the launches after which the host waited until all that was launched had ended."""
    calls = rank.operators[rank.operators["name"].isin(WAITING_CALLS)]
    copies = table[table["name"].str.contains(WAITING_COPIES)]
    position = np.concatenate([np.searchsorted(table["call_begin"], calls["begin"], side="right") - 1, copies.index])
    call_end = np.concatenate([calls["end"], copies["call_end"]])
    all_ended = np.maximum.accumulate(table["end"].to_numpy())
    waited = (position >= 0) & (all_ended[position] <= call_end + CLOCKS_US)
    return set(position[waited].tolist())


def _waits_for_streams(table: pandas.DataFrame, made: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """For each kernel those of other streams that it waited for, at most one of each; and the pauses of kernels that
    waited for nothing but the one before them in their stream."""
    begin, end = table["begin"].to_numpy(), table["end"].to_numpy()
    before = table.groupby("stream")["end"].shift(fill_value=-np.inf).to_numpy()
    ready = np.maximum(made, before)
    after: list[tuple[int, ...]] = [()] * len(table)
    groups = table.groupby("stream").indices
    for stream, mine in groups.items():
        for other, theirs in groups.items():
            last = np.searchsorted(end[theirs], begin[mine] + CLOCKS_US, side="right") - 1
            waited_for = theirs[last]
            seen = (other != stream) & (last >= 0) & (waited_for < mine) & (end[waited_for] > ready[mine])
            seen &= begin[mine] - end[waited_for] <= JUST_AFTER_US
            for i, j in zip(mine[seen], waited_for[seen], strict=True):
                after[i] = (*after[i], int(j))
    pauses = begin - before
    alone = (before > made) & (pauses < KERNEL_WAIT_US) & np.array([not waited_for for waited_for in after])
    return after, pauses[alone]


def _sources(rank: Rank, table: pandas.DataFrame) -> list[Source]:
    operators = rank.operators[rank.operators["category"] == "cpu_op"].reset_index(drop=True)
    place = innermost(operators, table["call_begin"])
    names = np.append(operators["name"].to_numpy(dtype=object), "")[place]
    ranges = np.append(rank.ranges["name"].to_numpy(dtype=object), "")[table["range"]]
    columns = zip(table["call"], place, names, ranges, table["step"], strict=True)
    return [Source(int(call), int(number), name, inside, int(step)) for call, number, name, inside, step in columns]


def _device(trace: Trace, rank: Rank) -> str:
    """What the trace was recorded on, as it says itself; of a replay, what that one stood for."""
    properties = rank.recording.meta.get("deviceProperties") or [{}]
    device = (trace.stamp or {}).get("device") or properties[0].get("name", "unknown GPU")
    return device.removeprefix("SIMULATED ")


def _faster(launches: Sequence[Launch], host: float, factors: Mapping[str, float]) -> list[Launch]:
    for text in factors:
        if not any(text in launch.name for launch in launches):
            raise LabkitError(f"kernels: {text!r} is in no kernel's name. Trace.kernels() lists the names.")
    changed = []
    for launch in launches:
        factor = np.prod([factor for text, factor in factors.items() if text in launch.name])
        changed.append(with_changes(launch, host_us=host * launch.host_us, kernel_us=float(factor) * launch.kernel_us))
    return changed


def _as_graphs(recorded: Recorded) -> Recorded:
    """Every step launched by one call."""
    launches, sources = list(recorded.launches), list(recorded.sources)
    first, last = {}, {}  # of each step
    for i, source in enumerate(sources):
        if source.step < 0:
            continue
        opens = source.step not in first
        launches[i] = with_changes(launches[i], host_us=GRAPH_US if opens else 0.0)
        call = sources[first.setdefault(source.step, i)].call
        sources[i] = Source(call, -1, "", "", source.step)
        last[source.step] = i
    if not first:
        raise LabkitError("graph: no steps are marked in this trace. Record with labkit.record, or profiler.step().")
    waits = {i for i in recorded.synchronise if sources[i].step < 0 or i == last[sources[i].step]}
    return Recorded(launches, sources, waits, recorded.gap_us, queue_limit=len(launches) + 1)
