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

from collections import defaultdict, deque
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

    @property
    def launch_delays(self) -> np.ndarray:
        """How long each launched kernel waited for its start. Long delays mean a full queue, so a busy GPU."""
        return self.kernel_start - self.host_end

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
    """Plays launches whose kernels slow each other down."""
    gpu = _GPU(launches, gap_us)
    host_start: list[float] = []
    now = 0.0
    streams: dict[int, list[int]] = defaultdict(list)  # the launches each has had so far
    for i, launch in enumerate(launches):
        earlier = streams[launch.stream]
        host_start.append(now)
        now += launch.host_us
        if len(earlier) >= queue_limit:
            now = max(now, gpu.start_of(earlier[-queue_limit]))
        gpu.launched.append(now)
        gpu.waiting[launch.stream].append(i)
        earlier.append(i)
        if i in waits:
            now = max(now, gpu.finish(waits[i]))
    gpu.finish()
    return gpu.begin, gpu.end, host_start, gpu.launched


class _GPU:
    """Runs the launched kernels, which may slow each other down, from one start or end of a kernel to the next.

    It advances only to the time that the host asks for, and the host asks when it has to wait.
    """

    def __init__(self, launches: Sequence[Launch], gap_us: float):
        self.launches, self.gap_us = launches, gap_us
        self.launched: list[float] = []
        self.begin = [0.0] * len(launches)
        self.end = [0.0] * len(launches)  # of a running kernel as expected so far; 0 before its start
        self.ended: set[int] = set()
        self.waiting: dict[int, deque[int]] = defaultdict(deque)  # by stream, launches whose kernels have not started
        self.running: dict[int, int] = {}  # by stream
        self.free: dict[int, float] = defaultdict(float)  # by stream, when its next kernel may start
        self.slowdown = 1.0

    def start_of(self, i: int) -> float:
        """When this kernel started."""
        while not self.end[i]:
            self.proceed()
        return self.begin[i]

    def finish(self, kernels: Collection[int] | None = None) -> float:
        """When these kernels have ended, or all."""
        while (self.running or any(self.waiting.values())) if kernels is None else not self.ended.issuperset(kernels):
            self.proceed()
        return max(self.end, default=0.0) if kernels is None else max(self.end[i] for i in kernels)

    def proceed(self) -> None:
        """Moves on to the next start or end of a kernel."""
        events = [(self.end[i], "end", stream) for stream, i in self.running.items()]
        for stream, queue in self.waiting.items():
            if queue and stream not in self.running and self.ended.issuperset(self.launches[queue[0]].after):
                ends = [self.end[other] for other in self.launches[queue[0]].after]
                events.append((max(self.launched[queue[0]], self.free[stream], *ends), "start", stream))
        time, event, stream = min(events)
        if event == "start":
            i = self.running[stream] = self.waiting[stream].popleft()
            self.begin[i] = time
            self.end[i] = time + self.launches[i].kernel_us * self.slowdown
        else:
            i = self.running.pop(stream)
            self.ended.add(i)
            self.free[stream] = self.end[i] + self.gap_us
        self._share_from(time)

    def _share_from(self, time: float) -> None:
        """Moves the ends of the running kernels: from `time` on, they share the multiprocessors."""
        needed = max(1.0, sum(self.launches[i].share for i in self.running.values()))
        if needed != self.slowdown:
            for i in self.running.values():
                self.end[i] = time + (self.end[i] - time) * needed / self.slowdown
            self.slowdown = needed


def replay_graph(launches: Sequence[Launch], graph_us: float) -> Timeline:
    """Plays the same kernels as a CUDA graph: one call of `graph_us` microseconds launches them all. SIMULATED.

    The graph is one entry of the queue, so the limit does not apply.
    """
    in_one_call = [replace(launch, host_us=0.0 if i else graph_us) for i, launch in enumerate(launches)]
    return play(in_one_call, queue_limit=len(launches) + 1)
