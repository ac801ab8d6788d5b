"""The launch queue between host and GPU, as a model: SIMULATED time, in microseconds from the first launch.

The host issues one launch after the other; every stream runs its kernels in the order of their launches. So each
kernel starts at the latest of three times: its launch is done, the kernel before it in its stream has ended (and the
pause between two kernels is over), and the kernels of other streams that it waits for have ended.

Kernels of different streams share the multiprocessors: while those that run together need more than all of them, all
run slower, by the sum of what they need.

What the model leaves out: memory bandwidth, copies and clock rates do not exist, a launch takes effect the moment it
ends, and a GPU shares in another way. It hands multiprocessors to blocks as they become free, so that a kernel which
came first can keep the other one waiting; here all slow down alike.

Sources: the CUDA C++ Programming Guide on streams, events and graphs; for the idle split, HTA (Holistic Trace
Analysis), https://hta.readthedocs.io.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import LabkitError
from labkit.traces.intervals import busy

QUEUE_LIMIT = 1024  # launches waiting in one stream, as seen by its users: https://stackoverflow.com/q/53970187
GAP_US = 1.0  # between two kernels of a stream that does not wait: an assumption, of the right order for GPUs
KERNEL_WAIT_US = 30.0  # a gap shorter than this is put down to the hardware: HTA's default


@dataclass(frozen=True)
class Launch:
    """One kernel and the call that launches it.

    `host_us` is the host's time until the launch is made (Python, PyTorch and the driver), `kernel_us` the kernel's
    duration when it runs alone. `after` has the positions, in the list of launches, of those whose kernels must have
    ended before this one's starts, as an event between streams does. `share`, from 0 to 1, is how much of the
    multiprocessors the kernel fills when it runs alone; with 0 it slows no other kernel down.
    """

    name: str
    host_us: float
    kernel_us: float
    stream: int = 0
    after: tuple[int, ...] = ()
    share: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """A played list of launches: when the host made each, and when its kernel ran and in which stream.

    Arrays in the launches' order; times in microseconds.
    """

    kernel_start: np.ndarray
    kernel_end: np.ndarray
    stream: np.ndarray
    host_start: np.ndarray
    host_end: np.ndarray

    @property
    def kernel_sum(self) -> float:
        """The sum of all kernels' durations; kernels that overlap count twice."""
        return float((self.kernel_end - self.kernel_start).sum())

    @property
    def busy(self) -> float:
        """The union of all kernels: how long at least one was running."""
        return busy(self.kernel_start, self.kernel_end)

    @property
    def wall(self) -> float:
        """From 0 until host and GPU are done."""
        return float(max(self.kernel_end.max(initial=0.0), self.host_end.max(initial=0.0)))

    @property
    def idle_share(self) -> float:
        """The share of the wall time in which no kernel runs on any stream."""
        return 1 - self.busy / self.wall if self.wall else 0.0

    @property
    def launch_delays(self) -> np.ndarray:
        """How long each kernel, launched, waited for its start. Long delays mean a full queue, so a busy GPU."""
        return self.kernel_start - self.host_end

    def queue_depth(self) -> tuple[np.ndarray, np.ndarray]:
        """Times, and how many kernels are launched but not started from each of them on; 0 before the first."""
        times, position = np.unique(np.concatenate([self.host_end, self.kernel_start]), return_inverse=True)
        change = np.repeat([1, -1], len(self.host_end))
        return times, np.bincount(position, weights=change, minlength=len(times)).cumsum().astype(int)

    def idle(self, stream: int = 0) -> dict[str, float]:
        """The gaps between a stream's kernels, in microseconds, by HTA's rule for each.

        host_wait: the kernel after the gap was launched only in the gap. kernel_wait: it was launched before, and the
        gap is short (under 30 us): what the hardware needs between two kernels, or a short wait for another stream.
        other: launched before, and the gap is long, as after a long wait for another stream.

        HTA takes a launch for made when its CUDA call begins; here that call is the very end of `host_us`.
        """
        mine = self.stream == stream
        gap_start, gap_end = self.kernel_end[mine][:-1], self.kernel_start[mine][1:]
        gaps, late = gap_end - gap_start, self.host_end[mine][1:] > gap_start
        short = ~late & (gaps < KERNEL_WAIT_US)
        causes = {"host_wait": late, "kernel_wait": short, "other": ~late & ~short}
        return {cause: float(gaps[chosen].sum()) for cause, chosen in causes.items()}


def play(
    launches: Sequence[Launch],
    synchronise: Collection[int] = (),
    queue_limit: int = QUEUE_LIMIT,
    gap_us: float = GAP_US,
) -> Timeline:
    """Plays launches in their order and says when what happened.

    After the launches at the positions in `synchronise` the host waits until the GPU is done. It also waits, inside
    the launch, as long as `queue_limit` kernels of that stream are launched and not started. A stream pauses for
    `gap_us` between two kernels. Raises `LabkitError` if a launch waits for one that is not before it in the list.
    """
    gpu = _GPU(launches, gap_us)
    host_start, host_end = np.zeros((2, len(launches)))
    now = 0.0  # on the host
    streams: dict[int, list[int]] = defaultdict(list)  # the launches each has had so far
    for i, launch in enumerate(launches):
        if not all(0 <= other < i for other in launch.after):
            raise LabkitError(f"launch {i} ({launch.name}) waits for {launch.after}: give positions before its own.")
        earlier = streams[launch.stream]
        host_start[i] = now
        now += launch.host_us
        if len(earlier) >= queue_limit:
            now = max(now, gpu.start_of(earlier[-queue_limit]))
        host_end[i] = now
        gpu.launch(i, now)
        earlier.append(i)
        if i in synchronise:
            now = max(now, gpu.finish())
    gpu.finish()
    stream = np.array([launch.stream for launch in launches], dtype=int)
    return Timeline(np.array(gpu.start), np.array(gpu.end), stream, host_start, host_end)


class _GPU:
    """Runs what was launched, from one start or end of a kernel to the next, and only as far as somebody asks.

    So it never runs ahead of the host, who asks only for what it then waits for.
    """

    def __init__(self, launches: Sequence[Launch], gap_us: float):
        self.launches, self.gap_us = launches, gap_us
        self.launched = [0.0] * len(launches)
        self.start: list[float | None] = [None] * len(launches)
        self.end = [0.0] * len(launches)  # of a running kernel, as foreseen; of one not started, 0
        self.ended: set[int] = set()
        self.waiting: dict[int, deque[int]] = defaultdict(deque)  # by stream, launches whose kernels have not started
        self.running: dict[int, int] = {}  # by stream
        self.free: dict[int, float] = defaultdict(float)  # by stream, when its next kernel may start
        self.slowdown = 1.0

    def launch(self, i: int, time: float) -> None:
        """Takes the launch at position `i`, made at `time`."""
        self.launched[i] = time
        self.waiting[self.launches[i].stream].append(i)

    def start_of(self, i: int) -> float:
        """When this kernel started."""
        while self.start[i] is None:
            self.proceed()
        return self.start[i]

    def finish(self) -> float:
        """When all is done."""
        while self.running or any(self.waiting.values()):
            self.proceed()
        return max(self.end, default=0.0)

    def proceed(self) -> None:
        """Goes on to the next start or end of a kernel."""
        events = [(self.end[i], "end", stream) for stream, i in self.running.items()]
        for stream, queue in self.waiting.items():
            if queue and stream not in self.running and self.ended.issuperset(self.launches[queue[0]].after):
                ends = [self.end[other] for other in self.launches[queue[0]].after]
                events.append((max(self.launched[queue[0]], self.free[stream], *ends), "start", stream))
        time, what, stream = min(events)
        if what == "start":
            i = self.running[stream] = self.waiting[stream].popleft()
            self.start[i] = time
            self.end[i] = time + self.launches[i].kernel_us * self.slowdown
        else:
            i = self.running.pop(stream)
            self.ended.add(i)
            self.free[stream] = self.end[i] + self.gap_us
        self._share_from(time)

    def _share_from(self, time: float) -> None:
        """Moves the ends of the running kernels: from `time` on, those that run now share the multiprocessors."""
        needed = max(1.0, sum(self.launches[i].share for i in self.running.values()))
        if needed != self.slowdown:
            for i in self.running.values():
                self.end[i] = time + (self.end[i] - time) * needed / self.slowdown
            self.slowdown = needed


def replay_graph(launches: Sequence[Launch], graph_us: float, gap_us: float = GAP_US) -> Timeline:
    """Plays the same kernels, recorded as a CUDA graph: one call of `graph_us` launches them all.

    The graph is one entry of the queue, so the limit does not apply.
    """
    at_once = [replace(launch, host_us=0.0 if i else graph_us) for i, launch in enumerate(launches)]
    return play(at_once, queue_limit=len(launches) + 1, gap_us=gap_us)
