"""The launch queue between host and GPU, as a model: SIMULATED time, in microseconds from the first launch.

The host issues one launch after the other, and every stream runs its kernels in the order of their launches. A kernel
starts as soon as its launch is done, the previous kernel of its stream has ended (and the pause after it is over), and
the kernels of other streams that it waits for have ended.

Kernels of different streams share the multiprocessors. If the kernels that run together need more multiprocessors than
there are, all of them slow down by the same factor, the sum of their shares.

The model leaves out caches and the way to memory that kernels share, copies and clock rates, and a launch takes effect
the moment it ends. A real GPU also shares in another way: it gives multiprocessors to blocks as they become free, so
the first kernel can keep the second one waiting. In the model both slow down alike.

Sources: the CUDA C++ Programming Guide on streams, events and graphs, and for the idle split HTA (Holistic
Trace Analysis), https://hta.readthedocs.io.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labtrace.errors import LabError
from labtrace.events.gaps import idle_causes
from labtrace.events.intervals import busy, levels

QUEUE_LIMIT = 1024  # launches waiting in one stream, as its users report: https://stackoverflow.com/q/53970187
GAP_US = 1.0  # between two kernels of a stream that does not wait: an assumption, of the right order for GPUs


@dataclass(frozen=True)
class Launch:
    """One kernel and the call that launches it.

    Attributes:
        name: of the kernel.
        host_us: the host's time until the launch is made (Python, PyTorch and the driver), in microseconds.
        kernel_us: the kernel's duration when it runs alone, in microseconds.
        stream: the number of its stream.
        after: the positions, in the list of launches, of the kernels that must have ended before this kernel starts,
            as with an event between streams.
        share: the part of the multiprocessors, from 0 to 1, that the kernel fills when it runs alone. With 0 it slows
            no other kernel down.
        data_us: the part of `host_us` in which the host loads data, or waits for it, in microseconds.
    """

    name: str
    host_us: float
    kernel_us: float
    stream: int = 0
    after: tuple[int, ...] = ()
    share: float = 0.0
    data_us: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """A played list of launches: when the host made each of them, and when and on which stream its kernel ran.

    The arrays are in the order of the launches, and times are in microseconds.
    """

    kernel_start: np.ndarray
    kernel_end: np.ndarray
    stream: np.ndarray
    host_start: np.ndarray
    host_end: np.ndarray

    @property
    def kernel_sum(self) -> float:
        """The sum of all kernels' durations. Kernels that overlap count twice."""
        return float((self.kernel_end - self.kernel_start).sum())

    @property
    def busy(self) -> float:
        """How long at least one kernel was running: the union of all kernels."""
        return busy(self.kernel_start, self.kernel_end)

    @property
    def wall(self) -> float:
        """The time from 0 until host and GPU are done."""
        return float(max(self.kernel_end.max(initial=0.0), self.host_end.max(initial=0.0)))

    @property
    def idle_share(self) -> float:
        """The share of the wall time in which no kernel runs on any stream."""
        return 1 - self.busy / self.wall if self.wall else 0.0

    def queue_depth(self) -> tuple[np.ndarray, np.ndarray]:
        """Times, and the number of kernels that are launched but not started from each time on, 0 before the first."""
        return levels(self.host_end, self.kernel_start)

    def idle(self, stream: int = 0) -> dict[str, float]:
        """The gaps between a stream's kernels, in microseconds by cause.

        host_wait: the kernel after the gap was launched only in the gap. kernel_wait: it was launched before, and the
        gap is short (under 30 us), because of the hardware's pause or a short wait for another stream. other: it was
        launched before, and the gap is long, for example because of a long wait for another stream.

        The rule is that of `labtrace.Trace.idle` and HTA. There a launch counts from the begin of its CUDA call,
        which here is the very end of `host_us`.
        """
        mine = self.stream == stream
        begin, end = self.kernel_end[mine][:-1], self.kernel_start[mine][1:]
        cause = idle_causes(begin, end, self.host_end[mine][1:])
        return {known: float((end - begin)[cause == known].sum()) for known in ("host_wait", "kernel_wait", "other")}


def play(
    launches: Sequence[Launch],
    synchronise: Collection[int] | Mapping[int, Collection[int]] = (),
    queue_limit: int = QUEUE_LIMIT,
    gap_us: float = GAP_US,
) -> Timeline:
    """Plays launches in their order: SIMULATED.

    Args:
        launches: in the order in which the host makes them.
        synchronise: positions of launches. After each of these the host waits until the GPU is done or, in a mapping,
            until the kernels at the given positions have ended.
        queue_limit: while this many kernels of a stream are launched and not started, its next launch waits.
        gap_us: the pause of a stream between two kernels, in microseconds.

    Raises:
        LabError: a launch waits for a launch that is not before it in the list.
    """
    for i, launch in enumerate(launches):
        if not all(0 <= other < i for other in launch.after):
            raise LabError(f"launch {i} ({launch.name}): after={launch.after} must hold positions before {i} only.")
    waits = synchronise if isinstance(synchronise, Mapping) else dict.fromkeys(synchronise)
    streams = [launch.stream for launch in launches]
    shared = len(set(streams)) > 1 and any(launch.share for launch in launches)
    if shared:
        times = _play_shared(launches, waits, queue_limit, gap_us)
    else:
        host_us, kernel_us = [launch.host_us for launch in launches], [launch.kernel_us for launch in launches]
        times = play_unshared(host_us, kernel_us, streams, [one.after for one in launches], waits, queue_limit, gap_us)
    begin, end, host_start, host_end = (np.array(each, dtype=float) for each in times)
    return Timeline(begin, end, np.array(streams, dtype=int), host_start, host_end)


Times = tuple[list[float], list[float], list[float], list[float]]  # of kernels begin and end, and so of the host


def play_unshared(
    host_us: Sequence[float],
    kernel_us: Sequence[float],
    streams: Sequence[int],
    after: Sequence[Collection[int]],
    waits: Mapping[int, Collection[int] | None],
    queue_limit: int,
    gap_us: float,
    ready: Mapping[int, float] | None = None,
) -> Times:
    """Plays launches whose kernels do not slow each other down, so that each begin and end is known at the launch.

    Args:
        host_us, kernel_us, streams, after: of each launch, as in `Launch`.
        waits: by the position of a launch, the kernels for whose end the host waits after it, or None for all.
        queue_limit, gap_us: as for `play`.
        ready: by stream, when the work that it had before has ended.
    """
    begin: list[float] = []
    end: list[float] = []
    host_start: list[float] = []
    host_end: list[float] = []
    free = dict.fromkeys(streams, 0.0) | dict(ready or {})  # when the next kernel of a stream may begin
    begun: dict[int, list[float]] = {stream: [] for stream in free}
    now = latest = 0.0
    for i, (work, lasting, stream, others) in enumerate(zip(host_us, kernel_us, streams, after, strict=True)):
        host_start.append(now)
        now += work
        queue = begun[stream]
        if len(queue) >= queue_limit and queue[-queue_limit] > now:
            now = queue[-queue_limit]
        host_end.append(now)
        time = free[stream]
        if now > time:  # max(now, time) would take several times as long, and this runs for every kernel
            time = now
        for other in others:
            if end[other] > time:
                time = end[other]
        begin.append(time)
        queue.append(time)
        time += lasting
        end.append(time)
        free[stream] = time + gap_us
        if time > latest:
            latest = time
        if i in waits:
            kernels = waits[i]
            now = max(now, latest if kernels is None else max(end[kernel] for kernel in kernels))
    return begin, end, host_start, host_end


def _play_shared(
    launches: Sequence[Launch],
    waits: Mapping[int, Collection[int] | None],
    queue_limit: int,
    gap_us: float,
) -> Times:
    """Plays launches whose kernels slow each other down, from one launch, start or end of a kernel to the next.

    A time is infinite until it is known, and so is the largest of several times if one of them is not known yet.
    """
    host_start, launched, begin, end = ([math.inf] * len(launches) for _ in range(4))
    queues: dict[int, list[int]] = defaultdict(list)  # by stream, what was launched there
    begun, free = Counter[int](), defaultdict[int, float](float)  # by stream: how many, and when the next may begin
    running: dict[int, float] = {}  # by kernel, its end if those that run with it stay the same
    slowdown, last, now = 1.0, -1, 0.0  # the last launch, and when it was made
    while True:
        events = [(ending, "end", i) for i, ending in running.items()]
        for stream, queue in queues.items():
            if begun[stream] < len(queue):
                i = queue[begun[stream]]
                events.append((max(launched[i], free[stream], *(end[k] for k in launches[i].after)), "begin", i))
        if (i := last + 1) < len(launches):
            kernels = waits.get(last, ())
            host_start[i] = max([now, *(end[:i] if kernels is None else (end[k] for k in kernels))])
            queue = queues[launches[i].stream]
            room = begin[queue[-queue_limit]] if len(queue) >= queue_limit else 0.0
            events.append((max(host_start[i] + launches[i].host_us, room), "launch", i))
        if not events:
            return begin, end, host_start, launched
        time, event, i = min(events)
        stream = launches[i].stream
        if event == "launch":
            launched[i] = now = time
            queues[stream].append(i)
            last = i
        elif event == "begin":
            begin[i], free[stream] = time, math.inf
            running[i] = time + launches[i].kernel_us * slowdown
            begun[stream] += 1
        else:
            end[i] = running.pop(i)
            free[stream] = time + gap_us
        # From now on those that run share the multiprocessors.
        needed = max(1.0, sum(launches[i].share for i in running))
        if needed != slowdown:
            running = {i: time + (ending - time) * needed / slowdown for i, ending in running.items()}
            slowdown = needed


def replay_graph(launches: Sequence[Launch], graph_us: float) -> Timeline:
    """Plays the same kernels as a CUDA graph: one call of `graph_us` microseconds launches them all. SIMULATED.

    The graph is one entry of the queue, so the limit does not apply.
    """
    in_one_call = [replace(launch, host_us=0.0 if i else graph_us) for i, launch in enumerate(launches)]
    return play(in_one_call, queue_limit=len(launches) + 1)
