"""The waits of the host and of the kernels, as far as a recording shows them.

- All threads that make calls count as one host. A launch takes effect when its call ends, or when its kernel begins if
  that is earlier.
- A call of a copy between host and GPU that ends after the copy itself blocked the host until then, on any stream. So
  did a copy from pageable memory whose call ends after its middle: the last part leaves from a buffer of the driver's.
- The host waited in a call that can wait. If all kernels launched before had ended when the call did, it waited for
  them all. Otherwise it waited for the last kernel of a stream, if that kernel ended during the call and just before
  its end. The host also waited in a call that found the queue full.
- A kernel waited for another stream if it was launched and its own stream was idle when a kernel of the other stream
  ended, and it began just after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas

from labtrace.events.clocks import CLOCKS_US
from labtrace.events.dialects import SYNCHRONISING, matching
from labtrace.events.gaps import KERNEL_WAIT_US
from labtrace.events.rank import Rank

# Calls in which the host may wait. To free memory waits for all work on the device, too.
WAITING_CALLS = rf"{SYNCHRONISING}|^(?:cuda|hip)(?:Free|FreeHost|HostFree)$"
TO_GPU = r"HtoD|HostToDevice|[HM]2D"  # M is memory that SYCL did not allocate
HOST_COPIES = rf"{TO_GPU}|DtoH|DeviceToHost|D2[HM]"
PINNED = "Pinned"  # a call does not wait for a copy of such memory, unless the call says so by its own length
JUST_AFTER_US = 5.0  # at most, from the end of a kernel to the begin of one in another stream that waited for it
LONG_KERNEL_US, NEARLY_ALL = 20.0, 0.9  # longer than the call that launches it, and the share of such kernels
FULL_QUEUE = 1000  # launches waiting in one stream: about the limit, which differs a little between devices


@dataclass(frozen=True)
class Dependencies:
    """The kernels of a rank in the order of their launches, with the waits of each kernel and of the host.

    Attributes:
        kernels: from `in_order`. All positions below are places in it.
        made: when the host would have made each launch if its call had not waited, in microseconds.
        depth: of each launch, how many entries of its queue were launched and not started when its call began. A graph
            is one entry, its first kernel.
        copies: whether each of them is a copy that blocked the host: its call ended after it did.
        waits: by the position of the last launch before it, the kernels that had to end before the host could go
            on, including those that had ended anyway.
        after: for each kernel the kernels of other streams that it waited for, at most one of each stream.
        pauses: the pauses before those kernels that waited only for the previous kernel of their own stream.
    """

    kernels: pandas.DataFrame
    made: np.ndarray
    depth: np.ndarray
    copies: pandas.Series
    waits: dict[int, tuple[int, ...]]
    after: list[tuple[int, ...]]
    pauses: np.ndarray

    def host_times(self) -> tuple[np.ndarray, np.ndarray]:
        """When the host began to work on each launch, and when it had made it."""
        table, end = self.kernels, self.kernels["end"].to_numpy()
        went_on = np.minimum(table["call_end"], table.groupby("call")["begin"].transform("min")).to_numpy(copy=True)
        for position, kernels in self.waits.items():
            went_on[position] = max(went_on[position], end[list(kernels)].max())
        free = np.concatenate([table["call_begin"][:1], np.maximum.accumulate(went_on)[:-1]])
        return free, np.maximum(free, self.made)


def dependencies(rank: Rank) -> Dependencies:
    """Reads the waits from a recording.

    Raises:
        TraceError: there is no GPU activity, or no launch.
    """
    table = in_order(rank)
    depth = _depth_at_call(table)
    copies = blocking_copies(table)
    blocked = (depth >= FULL_QUEUE) | copies
    typical = table["call_duration"][~blocked].median()
    began = table.groupby("call")["begin"].transform("min")
    made = np.where(
        blocked,
        table["call_begin"] + table["call_duration"].clip(upper=typical),
        np.minimum(table["call_end"], began),
    )
    after = _waits_for_streams(table, made)
    waits = _waits_of_host(rank, table, copies)
    return Dependencies(table, made, depth, copies, waits, after, _pauses(table, made, after))


def in_order(rank: Rank) -> pandas.DataFrame:
    """The kernels in the order of their launches, with `call_end` and, as `call`, the number of the launching call.

    A kernel whose launch is not in the trace counts as launched when it began or, if that is earlier, when the next
    kernel of its stream was: a stream runs its kernels in the order of their launches.
    """
    rank.check_launches()
    table = rank.kernels
    unknown = table["call_begin"].isna()
    later_first = table.sort_values("begin", ascending=False, kind="stable")
    before_next = later_first.groupby("stream")["call_begin"].cummin().groupby(later_first["stream"]).ffill()
    table = table.assign(
        call_begin=table["call_begin"].fillna(np.fmin(table["begin"], before_next)),
        call_duration=table["call_duration"].fillna(0.0),
        call=table["correlation"].where(~unknown, -1 - table.index.to_numpy()),
    ).sort_values(["call_begin", "begin"], kind="stable", ignore_index=True)
    return table.assign(call_end=table["call_begin"] + table["call_duration"], call=pandas.factorize(table["call"])[0])


def _depth_at_call(table: pandas.DataFrame) -> np.ndarray:
    """The number of entries of the same queue that were launched and not started when each call began."""
    depth = np.zeros(len(table), dtype=int)
    # Of a stream's queue: kernels, and of a graph, which is one entry, the first kernel.
    for _, entries in table.drop_duplicates(["stream", "call"]).groupby("stream"):
        started = np.searchsorted(np.sort(entries["begin"]), entries["call_begin"], side="right")
        depth[entries.index] = np.maximum(0, np.arange(len(entries)) - started)
    return depth


def blocking_copies(table: pandas.DataFrame) -> pandas.Series:
    """Which rows of `in_order` are copies that blocked the host: their calls ended after they did, or nearly."""
    names, calls = table["name"], table["call_duration"]
    copies, pinned = (table["kind"] == "memory") & matching(names, HOST_COPIES), matching(names, PINNED)
    whole = table["call_end"] >= table["end"] - CLOCKS_US
    nearly = matching(names, TO_GPU) & ~pinned & (table["call_end"] > (table["begin"] + table["end"]) / 2)
    return copies & (whole | nearly) & (~pinned | (calls > calls.median() + KERNEL_WAIT_US))


def launches_block(table: pandas.DataFrame) -> bool:
    """Whether nearly each launch in `table` ends after its kernel, as with CUDA_LAUNCH_BLOCKING."""
    own = table[(table["kind"] != "memory") & (table["sharing"] == 1)]
    waited = own["call_begin"] + own["call_duration"] >= own["end"] - CLOCKS_US
    long = own["duration"] > LONG_KERNEL_US  # a short one can end before the call of its launch does
    return bool(long.any() and waited[long].mean() > NEARLY_ALL)


def _waits_of_host(rank: Rank, table: pandas.DataFrame, copies: pandas.Series) -> dict[int, tuple[int, ...]]:
    """`Dependencies.waits`."""
    end = table["end"].to_numpy()
    streams = list(table.groupby("stream").indices.values())
    waits: dict[int, tuple[int, ...]] = {}
    calls = rank.operators[matching(rank.operators["name"], WAITING_CALLS)].sort_values("begin")
    positions = np.searchsorted(table["call_begin"], calls["begin"], side="right") - 1
    rows = zip(positions, calls["begin"], calls["end"], calls["correlation"], strict=True)
    own = table[(copies | launches_block(table)) & ~table["correlation"].isin(calls["correlation"])]
    rows_of_copies = zip(own.index, own["call_begin"], own["call_end"], own["correlation"], strict=True)
    of_copies = dict(zip(own["correlation"], own.index, strict=True)) | dict(
        zip(table["correlation"][copies], table.index[copies], strict=True)
    )
    for position, since, until, call in sorted([*rows, *rows_of_copies]):
        if position < 0:
            continue
        if call in of_copies:
            kernels = [int(of_copies[call])]
        else:
            newest = [mine[place - 1] for mine in streams if (place := np.searchsorted(mine, position, side="right"))]
            kernels = [int(one) for one in newest]
            if end[kernels].max() > until + CLOCKS_US:  # it waited for one stream at most
                since = max(since, until - KERNEL_WAIT_US)
                ended = [one for one in kernels if since < end[one] <= until + CLOCKS_US]
                kernels = [max(ended, key=lambda one: end[one])] if ended else []
        if kernels:
            waits[int(position)] = tuple({*waits.get(int(position), ()), *kernels})
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
    """The pauses before those kernels that waited only for the previous kernel of their own stream.

    Their launches were made a while before it ended, or the time that a launch takes to reach the GPU would count.
    """
    before = table.groupby("stream")["end"].shift(fill_value=-np.inf).to_numpy()
    pauses = table["begin"].to_numpy() - before
    waited = (before > made + JUST_AFTER_US) & (pauses < KERNEL_WAIT_US)
    return pauses[waited & np.array([not others for others in after])]
