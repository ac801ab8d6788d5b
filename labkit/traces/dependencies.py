"""What the host and the kernels of a recording waited for, as far as it shows.

- There is one host, whichever of its threads made a call. A launch takes effect when its call ends, or when its kernel
  begins if that is earlier.
- The host waited in a call that can wait, if all kernels launched before had ended when the call did. It also waited in
  a call that found the queue full.
- If the trace has events of synchronisation (cuda_sync), they say for which kernel the host waited, and a stream.
  Otherwise a kernel waited for another stream if it was launched and its own stream was idle when a kernel of the other
  stream ended, and it began just after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas

from labkit.errors import LabkitError
from labkit.traces.rank import SYNCS, Rank
from labkit.traces.tables import KERNEL_WAIT_US

WAITING_CALLS = tuple(
    maker + call
    for maker in ("cuda", "hip")
    for call in ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "Memcpy")
)
WAITING_COPIES = "Pageable"  # the host's memory is not pinned: the call of such a copy may wait until it is done
CLOCKS_US = 1.0  # the clocks of host and GPU may differ by so much
JUST_AFTER_US = 5.0  # a kernel that waited for another stream begins so soon after that stream's kernel ended
HOST_SYNCS, STREAM_SYNC = ("Stream Sync", "Event Sync"), "Stream Wait Event"  # names of these events
FULL_QUEUE = 1000  # launches waiting in one stream: about the limit, which differs a little between devices


@dataclass(frozen=True)
class Dependencies:
    """The kernels of a rank in the order of their launches, and what each of them and the host waited for.

    Attributes:
        kernels: from `in_order`. All positions below are places in it.
        made: when the host would have made each launch without a wait in its call, in microseconds.
        depth: of each launch, how many kernels of its stream were launched and not started when its call began.
        blocked: whether the call of each launch waited: for a full queue, or for its own copy.
        waits: by the position of the last launch before it, when a call began in which the host could not go on until
            all launched kernels had ended: the first of several.
        after: for each kernel the kernels of other streams that it waited for, at most one of each stream.
        awaited: by the correlation of the call, the kernel that the host waited for, where the trace says so.
        pauses: the pauses before those kernels that waited only for the previous kernel of their own stream.
    """

    kernels: pandas.DataFrame
    made: np.ndarray
    depth: np.ndarray
    blocked: np.ndarray
    waits: dict[int, float]
    after: list[tuple[int, ...]]
    awaited: dict[int, int]
    pauses: np.ndarray


def dependencies(rank: Rank) -> Dependencies:
    """Reads them from a recording.

    Raises:
        TraceError: there is no GPU activity.
        LabkitError: there are no launches.
    """
    table = in_order(rank)
    depth = _depth_at_call(table)
    waits = _waits(rank, table)
    blocked = (depth >= FULL_QUEUE) | (table.index.isin(list(waits)) & table["name"].str.contains(WAITING_COPIES))
    typical = table["call_duration"][~blocked].median()
    began = table.groupby("call")["begin"].transform("min")
    made = np.where(
        blocked,
        table["call_begin"] + table["call_duration"].clip(upper=typical),
        np.minimum(table["call_end"], began),
    )
    awaited, told = _told(rank, table)
    after = [told.get(i, ()) for i in range(len(table))] if told else _waits_for_streams(table, made)
    pauses = _pauses(table, made, after)
    return Dependencies(table, made, depth, blocked.to_numpy(), waits, after, awaited, pauses)


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
        call=table["correlation"].where(~unknown, -1 - table.index.to_numpy()),
    ).sort_values(["call_begin", "begin"], kind="stable", ignore_index=True)
    return table.assign(call_end=table["call_begin"] + table["call_duration"], call=pandas.factorize(table["call"])[0])


def _depth_at_call(table: pandas.DataFrame) -> np.ndarray:
    """The number of kernels of the same stream that were launched and not started when each call began."""
    depth = np.zeros(len(table), dtype=int)
    for _, mine in table.groupby("stream"):
        started = np.searchsorted(np.sort(mine["begin"]), mine["call_begin"], side="right")
        depth[mine.index] = np.maximum(0, np.arange(len(mine)) - started)
    return depth


def _waits(rank: Rank, table: pandas.DataFrame) -> dict[int, float]:
    """The positions of the launches after which the host waited until all launched kernels had ended, and since when.

    A call counts even if it found them all ended.
    """
    position, call_begin, call_end, _ = _waiting_calls(rank, table)
    all_ended = np.maximum.accumulate(table["end"].to_numpy())
    waited = (position >= 0) & (all_ended[position] <= call_end + CLOCKS_US)
    since = pandas.Series(call_begin[waited]).groupby(position[waited]).min()
    return {int(place): float(began) for place, began in since.items()}


def _waiting_calls(rank: Rank, table: pandas.DataFrame) -> tuple[np.ndarray, ...]:
    """The calls that can wait: the position of the last launch before each, or of its copy; begin, end, correlation."""
    calls = rank.operators[rank.operators["name"].isin(WAITING_CALLS)]
    copies = table[table["name"].str.contains(WAITING_COPIES)]
    return (
        np.concatenate([np.searchsorted(table["call_begin"], calls["begin"], side="right") - 1, copies.index]),
        np.concatenate([calls["begin"], copies["call_begin"]]),
        np.concatenate([calls["end"], copies["call_end"]]),
        np.concatenate([calls["correlation"], copies["correlation"]]),
    )


def waits_of_host(rank: Rank, found: Dependencies) -> dict[int, tuple[int, bool]]:
    """What the host really waited for, one kernel at a time: `Dependencies.waits` are waits for all of them.

    A call that found nothing to wait for is none. A call that can wait waited for all launched kernels if they had
    ended when it did, and so for the last of them. If not, it waited for the last kernel of one stream if this ended
    in the call, just before its end. A launch that found the queue full waited for a kernel to begin.

    Returns:
        By the position of the last launch before the host went on: the kernel's position, and whether the host waited
        for its end (True) or its begin.
    """
    table = found.kernels
    begin, end, call_end = (table[column].to_numpy() for column in ("begin", "end", "call_end"))
    waits: dict[int, tuple[int, bool]] = {}
    for mine in table.groupby("stream").indices.values():
        for number in np.flatnonzero(found.depth[mine] >= FULL_QUEUE).tolist():
            freed = mine[number - found.depth[mine[number]]]  # the first that had not begun when the call did
            if begin[freed] <= call_end[mine[number]]:
                waits[int(mine[number])] = int(freed), False
    streams = list(table.groupby("stream").indices.values())
    for position, since, until, call in sorted(zip(*_waiting_calls(rank, table), strict=True)):
        if call in found.awaited:
            if end[found.awaited[call]] > since:
                waits[int(position)] = found.awaited[call], True
            continue
        before = [mine[place - 1] for mine in streams if (place := np.searchsorted(mine, position, side="right"))]
        newest = np.array(before, dtype=int)  # of each stream
        for_all = len(newest) and end[newest].max() <= until + CLOCKS_US
        earliest = since if for_all else max(since, until - KERNEL_WAIT_US)
        ended = newest[(end[newest] > earliest) & (end[newest] <= until + CLOCKS_US)]
        if len(ended):
            waits[int(position)] = int(ended[np.argmax(end[ended])]), True
    return waits


def _waits_for_streams(table: pandas.DataFrame, made: np.ndarray) -> list[tuple[int, ...]]:
    """For each kernel the kernels of other streams that it waited for, at most one of each stream."""
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
    return after


def _pauses(table: pandas.DataFrame, made: np.ndarray, after: list[tuple[int, ...]]) -> np.ndarray:
    """The pauses before those kernels that waited only for the previous kernel of their own stream."""
    before = table.groupby("stream")["end"].shift(fill_value=-np.inf).to_numpy()
    pauses = table["begin"].to_numpy() - before
    alone = (before > made) & (pauses < KERNEL_WAIT_US) & np.array([not waited_for for waited_for in after])
    return pauses[alone]


def _told(rank: Rank, table: pandas.DataFrame) -> tuple[dict[int, int], dict[int, tuple[int, ...]]]:
    """What waits for what, where the trace has events of synchronisation; `Dependencies.awaited` and, in part, `after`.

    A wait for an event is one for the last kernel that its stream had been given when the event was recorded.
    """
    events = rank.recording.events
    syncs = events[events["category"] == SYNCS]
    began = rank.calls.drop_duplicates("correlation").set_index("correlation")["begin"]
    streams, launched = table.groupby("stream").indices, table["call_begin"].to_numpy()
    awaited: dict[int, int] = {}
    after: dict[int, tuple[int, ...]] = {}
    for name, stream, call in zip(syncs["name"], syncs["stream"], syncs["correlation"], strict=True):
        source, record = rank.recording.waits_on.get(call, (stream, call))
        if call not in began or record not in began or source not in streams:
            continue
        earlier = streams[source][launched[streams[source]] < began[record]]
        if not len(earlier):
            continue
        if name in HOST_SYNCS:
            awaited[call] = int(earlier[-1])
        elif name == STREAM_SYNC and stream in streams and stream != source:
            later = streams[stream][launched[streams[stream]] >= began[call]]
            if len(later):
                after[int(later[0])] = (*after.get(int(later[0]), ()), int(earlier[-1]))
    return awaited, after
