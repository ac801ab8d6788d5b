"""A recorded trace, played again with one thing changed: SIMULATED, but with durations that were measured.

We read from the recording the duration and the stream of every kernel, the host's time between one launch and the
next, and the waits, as far as they show:

- There is one host, whichever of its threads made a call. A launch takes effect when its call ends, or when its kernel
  begins if that is earlier.
- The host waited in a call that can wait, if all kernels launched before had ended when the call did. It also waited in
  a call that found the queue full.
- A kernel waited for another stream if it was launched and its own stream was idle when a kernel of the other stream
  ended, and it began just after.
- Kernels of one stream pause between each other for the mean of the recorded pauses.

The model leaves out some things. A wait for one stream while others go on counts as the host's work. Kernels that ran
together keep the durations they then had, even if a change separates them. Other reasons for a kernel to wait do not
exist, such as the time a launch takes to reach the GPU. So do not compare a replay with the trace, but with the
unchanged replay of the same trace: the result is a ratio.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as with_changes

import numpy as np
import pandas

from labkit.errors import LabkitError
from labkit.simulate.launch_queue import GAP_US, QUEUE_LIMIT, Launch
from labkit.simulate.trace_file import GRAPH_US, Replay, Source
from labkit.traces.rank import Rank, innermost
from labkit.traces.tables import KERNEL_WAIT_US
from labkit.traces.trace import Trace

WAITING_CALLS = tuple(
    maker + call
    for maker in ("cuda", "hip")
    for call in ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "Memcpy")
)
WAITING_COPIES = "Pageable"  # the host's memory is not pinned: the call of such a copy may wait until it is done
CLOCKS_US = 1.0  # the clocks of host and GPU may differ by so much
JUST_AFTER_US = 5.0  # a kernel that waited for another stream begins so soon after that stream's kernel ended
TOLD, REFUSED = 0.05, 0.2  # shares of the wall time by which an unchanged replay differs from its recording
FULL_QUEUE = 1000  # launches waiting in one stream: about QUEUE_LIMIT, which differs a little between devices


class ReplayWarning(UserWarning):
    """An unchanged replay differs from its recording."""


def what_if(
    trace: Trace,
    host: float = 1.0,
    kernels: float | Mapping[str, float] = 1.0,
    graph: bool = False,
    data: float = 1.0,
    rank: int | None = None,
    balanced: bool = False,
) -> Replay:
    """Plays a recorded trace again, unchanged or with something changed: SIMULATED.

    For example, `what_if(trace, host=0.5).timeline.wall / what_if(trace).timeline.wall` is the share of the time that
    a host of twice the speed would need. `labkit/simulate/what_if.py` says what the model leaves out.

    Args:
        trace: with host and GPU.
        host: a factor on the host's time, but not on its waits or on the loading of data.
        kernels: a factor on the durations of all kernels; or factors by text, each for the kernels whose name
            contains the text, for example {"gemm": 0.5, "Memcpy": 0.0}. The host's time to launch them stays.
        graph: whether one call launches each step, as a CUDA graph. This call and the loading of data then are all of
            the host's time in a step: waits in the middle of the step are left out.
        data: a factor on the time in which the host loads data, or waits for its loader: 0 is a loader that is always
            ahead. Only labkit's range "data" and the DataLoader's own are known to load data. Loader processes that
            take cores from the host are left out.
        rank: to play, of a trace of several.
        balanced: whether no rank waits for another: each collective then lasts as long as in the rank that joined it
            last. That rank's own work stays as it is, since nothing tells what a fair share of it would be.

    Raises:
        TraceError: the trace holds no GPU activity.
        LabkitError: a factor is negative or no number; the trace has several ranks, and `rank` names none of them; it
            has no launches or, for a graph, no steps; a text is in no kernel's name; `balanced`, and it is unknown how
            long ranks waited; or the unchanged replay differs from the recording by more than `REFUSED`.

    Warns:
        ReplayWarning: it differs by more than `TOLD`.
    """
    ranks = list(trace.ranks)
    if rank not in (ranks if rank is not None or len(ranks) > 1 else [None]):
        raise LabkitError(f"rank={rank}: a replay is of one rank. Choose among {', '.join(map(str, ranks))}.")
    chosen = trace.ranks[ranks[0] if rank is None else rank]
    recorded = read_launches(chosen)
    warn_of(check(chosen, recorded))
    factors = kernels if isinstance(kernels, Mapping) else {"": kernels}
    for name, factor in {
        "host": host,
        "data": data,
        **{f"kernels {text!r}": us for text, us in factors.items()},
    }.items():
        if not 0 <= factor < np.inf:
            raise LabkitError(f"{name}: {factor} is no factor on a time. Give 0 or more: 0.5 is twice as fast.")
    launches = _faster(recorded.launches, host, factors, data)
    if balanced:
        launches = _balanced(launches, chosen, trace.ranks.values())
    played = with_changes(recorded, launches=launches)
    if graph:
        played = played.as_graphs()
    assumed = {
        "made_from": trace.stamp or {"file": chosen.recording.file.name},
        "changed": {"host": host, "kernels": dict(factors), "graph": graph, "data": data, "balanced": balanced},
        "constants": {
            "gap_us": played.gap_us,
            "queue_limit": played.queue_limit,
            "graph_us": GRAPH_US if graph else None,
        },
    }
    return with_changes(played, assumed=assumed)


def check(rank: Rank, unchanged: Replay) -> str:
    """Holds an unchanged replay to its recording: wall, busy and idle time of the GPU.

    Returns:
        A sentence if one differs by more than `TOLD` of the wall time, else "".

    Raises:
        LabkitError: one differs by more than `REFUSED` of it.
    """
    if rank.start == rank.stop:
        raise LabkitError(f"{rank.recording.file}: its kernels took no time at all, so there is nothing to gain.")
    timeline = unchanged.timeline
    wall, right = float(timeline.kernel_end.max() - timeline.kernel_start.min()), rank.stop - rank.start
    busy = float(np.sum(rank.busy.end - rank.busy.begin))
    pairs = {"wall": (wall, right), "busy": (timeline.busy, busy), "idle": (wall - timeline.busy, right - busy)}
    worst = max(pairs, key=lambda name: abs(pairs[name][0] - pairs[name][1]))
    mine, recorded = pairs[worst]
    apart = abs(mine - recorded) / right
    if apart <= TOLD:
        return ""
    said = (
        f"{rank.recording.file}: played again without a change, the {worst} time is {mine:,.0f} us, and in the "
        f"recording {recorded:,.0f} us ({apart:.0%} of the wall time)."
    )
    unknown = rank.kernels["call_begin"].isna().mean()
    cause = f" The launches of {unknown:.0%} of the kernels are not in the trace." if unknown > TOLD else ""
    if apart > REFUSED:
        raise LabkitError(f"{said}{cause} So this trace cannot tell what a change would bring. See Trace.audit().")
    return f"{said}{cause} Take what a change would bring as no more exact."


def warn_of(doubt: str) -> None:
    """Warns the caller of the public function that calls this, if there is a doubt."""
    if doubt:
        warnings.warn(doubt, ReplayWarning, stacklevel=3)


def read_launches(rank: Rank) -> Replay:
    """The launches of a recorded rank, unchanged and ready to be played.

    Raises:
        TraceError: there is no GPU activity.
        LabkitError: there are no launches.
    """
    table = in_order(rank)
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
    free = np.concatenate([table["call_begin"][:1], went_on[:-1]])  # when the host began to work on each launch
    host_us = np.maximum(0.0, made - free)
    data_us = np.minimum(host_us, rank.loading.covered(free, np.maximum(free, made)))
    after, pauses = _waits_for_streams(table, made)
    columns = zip(table["name"], host_us, table["duration"], table["stream"], after, data_us, strict=True)
    launches = [
        Launch(name, float(host), float(us), int(stream), waited, data_us=float(loading))
        for name, host, us, stream, waited, loading in columns
    ]
    if table["call"].duplicated().any():
        queue_limit = len(table) + 1  # a graph is one entry of the queue
    gap_us = float(np.mean(pauses)) if len(pauses) else _shortest_pause(table)
    return Replay(launches, _sources(rank, table), waits, _device(rank), {}, gap_us=gap_us, queue_limit=queue_limit)


def waited(rank: Rank, ranks: Collection[Rank]) -> np.ndarray | None:
    """How long a rank waited for others in each of its collectives, in the order of their launches; None if unknown.

    All ranks leave a collective together, so the one that was in it for the shortest time did not wait.
    """
    if len(ranks) < 2 or not all(each.has_gpu and each.kernels["call_begin"].notna().any() for each in ranks):
        return None
    tables = {each: in_order(each) for each in ranks}
    durations = {each: table["duration"][table["kind"] == "communication"] for each, table in tables.items()}
    if len({len(each) for each in durations.values()}) > 1 or durations[rank].empty:
        return None
    return durations[rank].to_numpy() - np.min([each.to_numpy() for each in durations.values()], axis=0)


def in_order(rank: Rank) -> pandas.DataFrame:
    """The kernels in the order of their launches, with `call_end` and, as `call`, the number of the launching call.

    A kernel whose launch is not in the trace counts as launched when it began or, if that is earlier, when the next
    kernel of its stream was: a stream runs its kernels in the order of their launches.
    """
    table = rank.kernels
    unknown = table["call_begin"].isna()
    if unknown.all():
        raise LabkitError(
            f"{rank.recording.file}: no launch of any kernel in this trace, so it cannot be replayed. Record the host, "
            "too: ProfilerActivity.CPU, as labkit.record does."
        )
    later_first = table.sort_values("begin", ascending=False, kind="stable")
    before_next = later_first.groupby("stream")["call_begin"].cummin().groupby(later_first["stream"]).ffill()
    table = table.assign(
        call_begin=table["call_begin"].fillna(np.fmin(table["begin"], before_next)),
        call_duration=table["call_duration"].fillna(0.0),
        call=table["correlation"].where(~unknown, -1 - table.index),
    ).sort_values(["call_begin", "begin"], kind="stable", ignore_index=True)
    return table.assign(call_end=table["call_begin"] + table["call_duration"], call=pandas.factorize(table["call"])[0])


def _depth_at_call(table: pandas.DataFrame) -> np.ndarray:
    """The number of kernels of the same stream that were launched and not started when each call began."""
    depth = np.zeros(len(table), dtype=int)
    for _, mine in table.groupby("stream"):
        started = np.searchsorted(np.sort(mine["begin"]), mine["call_begin"], side="right")
        depth[mine.index] = np.maximum(0, np.arange(len(mine)) - started)
    return depth


def _waits(rank: Rank, table: pandas.DataFrame) -> set[int]:
    """The positions of the launches after which the host waited until all launched kernels had ended."""
    calls = rank.operators[rank.operators["name"].isin(WAITING_CALLS)]
    copies = table[table["name"].str.contains(WAITING_COPIES)]
    position = np.concatenate([np.searchsorted(table["call_begin"], calls["begin"], side="right") - 1, copies.index])
    call_end = np.concatenate([calls["end"], copies["call_end"]])
    all_ended = np.maximum.accumulate(table["end"].to_numpy())
    waited = (position >= 0) & (all_ended[position] <= call_end + CLOCKS_US)
    return set(position[waited].tolist())


def _waits_for_streams(table: pandas.DataFrame, made: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """For each kernel the kernels of other streams that it waited for, at most one of each stream.

    Also the pauses before those kernels that waited only for the previous kernel of their own stream.
    """
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


def _shortest_pause(table: pandas.DataFrame) -> float:
    """The pause between kernels of a stream where none waited for the one before: at most the shortest seen."""
    pauses = table["begin"] - table.groupby("stream")["end"].shift()
    return min(GAP_US, max(0.0, float(pauses.min()))) if pauses.notna().any() else GAP_US


def _sources(rank: Rank, table: pandas.DataFrame) -> list[Source]:
    operators = rank.operators[rank.operators["category"] == "cpu_op"].reset_index(drop=True)
    place = innermost(operators, table["call_begin"])
    names = np.append(operators["name"].to_numpy(dtype=object), "")[place]
    ranges = np.append(rank.ranges["name"].to_numpy(dtype=object), "")[table["range"]]
    columns = zip(table["call"], place, names, ranges, table["step"], strict=True)
    return [Source(int(call), int(number), name, inside, int(step)) for call, number, name, inside, step in columns]


def _device(rank: Rank) -> str:
    """The device that the trace was recorded on, as it says itself; of a replay, the device it stood for."""
    meta = rank.recording.meta
    properties = meta.get("deviceProperties") or [{}]
    device = (meta.get("labkit") or {}).get("device") or properties[0].get("name", "unknown GPU")
    return device.removeprefix("SIMULATED ")


def _faster(launches: Sequence[Launch], host: float, factors: Mapping[str, float], data: float) -> list[Launch]:
    for text in factors:
        if not any(text in launch.name for launch in launches):
            raise LabkitError(f"kernels: {text!r} is in no kernel's name. Trace.kernels() lists the names.")
    changed = []
    for launch in launches:
        factor = np.prod([factor for text, factor in factors.items() if text in launch.name])
        loading = data * launch.data_us
        host_us = host * (launch.host_us - launch.data_us) + loading
        changed.append(
            with_changes(launch, host_us=host_us, kernel_us=float(factor) * launch.kernel_us, data_us=loading)
        )
    return changed


def _balanced(launches: Sequence[Launch], rank: Rank, ranks: Collection[Rank]) -> list[Launch]:
    waits = waited(rank, ranks)
    if waits is None:
        raise LabkitError(
            f"{rank.recording.file}: balanced needs the traces of all ranks, with the same number of collectives in "
            "each: open their folder."
        )
    of_kernel = np.zeros(len(launches))
    of_kernel[np.flatnonzero(in_order(rank)["kind"] == "communication")] = waits
    return [
        with_changes(launch, kernel_us=max(0.0, launch.kernel_us - wait))
        for launch, wait in zip(launches, of_kernel.tolist(), strict=True)
    ]
