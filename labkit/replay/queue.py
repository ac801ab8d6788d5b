"""The launch queue between host and GPU, as a model: SIMULATED time, in microseconds from the first launch.

The host issues one launch after the other; every stream runs its kernels in the order of their launches. So each
kernel starts at the latest of three times: its launch is done, the kernel before it in its stream has ended (and the
pause between two kernels is over), and the kernels of other streams that it waits for have ended.

What the model leaves out: kernels of two streams do not slow each other down (`labkit.replay.sharing` models that),
a launch takes effect the moment it ends, and copies, memory and clock rates do not exist.

Sources: the CUDA C++ Programming Guide on streams, events and graphs; for the idle split, HTA (Holistic Trace
Analysis), https://hta.readthedocs.io.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labkit.errors import LabkitError

QUEUE_LIMIT = 1024  # launches waiting in one stream, as seen by its users: https://stackoverflow.com/q/53970187
GAP_US = 1.0  # between two kernels of a stream that does not wait: an assumption, of the right order for GPUs
KERNEL_WAIT_US = 30.0  # a gap shorter than this is put down to the hardware: HTA's default


@dataclass(frozen=True)
class Launch:
    """One kernel and the call that launches it.

    `host_us` is the host's time until the launch is made (Python, PyTorch and the driver), `kernel_us` the kernel's
    duration. `after` has the positions, in the list of launches, of those whose kernels must have ended before this
    one's starts, as an event between streams does.
    """

    name: str
    host_us: float
    kernel_us: float
    stream: int = 0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelTimes:
    """When kernels ran, and in which stream: three arrays of one length, a kernel each; times in microseconds."""

    kernel_start: np.ndarray
    kernel_end: np.ndarray
    stream: np.ndarray

    @property
    def kernel_sum(self) -> float:
        """The sum of all kernels' durations; kernels that overlap count twice."""
        return float((self.kernel_end - self.kernel_start).sum())

    @property
    def busy(self) -> float:
        """The union of all kernels: how long at least one was running."""
        order = np.argsort(self.kernel_start, kind="stable")
        latest_end = np.maximum.accumulate(self.kernel_end[order])
        covered_until = np.concatenate([[0.0], latest_end])[:-1]
        return float((latest_end - np.maximum(self.kernel_start[order], covered_until)).sum())

    @property
    def wall(self) -> float:
        """From 0 until all is done."""
        return float(self.kernel_end.max(initial=0.0))

    @property
    def idle_share(self) -> float:
        """The share of the wall time in which no kernel runs on any stream."""
        return 1 - self.busy / self.wall if self.wall else 0.0


@dataclass(frozen=True)
class Timeline(KernelTimes):
    """A played list of launches: when the host made each, and when its kernel ran. Arrays in the launches' order."""

    host_start: np.ndarray
    host_end: np.ndarray

    @property
    def wall(self) -> float:
        """From 0 until host and GPU are done."""
        return max(super().wall, float(self.host_end.max(initial=0.0)))

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
    host_start, host_end, kernel_start, kernel_end = np.zeros((4, len(launches)))
    now = 0.0  # on the host
    streams: dict[int, list[int]] = {launch.stream: [] for launch in launches}  # the launches each has had so far
    for i, launch in enumerate(launches):
        if not all(0 <= other < i for other in launch.after):
            raise LabkitError(f"launch {i} ({launch.name}) waits for {launch.after}: give positions before its own.")
        earlier = streams[launch.stream]
        host_start[i] = now
        now += launch.host_us
        if len(earlier) >= queue_limit:
            now = max(now, kernel_start[earlier[-queue_limit]])
        host_end[i] = now
        free = kernel_end[earlier[-1]] + gap_us if earlier else 0.0
        kernel_start[i] = max([now, free, *kernel_end[list(launch.after)]])
        kernel_end[i] = kernel_start[i] + launch.kernel_us
        earlier.append(i)
        if i in synchronise:
            now = max(now, kernel_end.max())
    stream = np.array([launch.stream for launch in launches], dtype=int)
    return Timeline(kernel_start, kernel_end, stream, host_start, host_end)


def replay_graph(launches: Sequence[Launch], graph_us: float, gap_us: float = GAP_US) -> Timeline:
    """Plays the same kernels, recorded as a CUDA graph: one call of `graph_us` launches them all.

    The graph is one entry of the queue, so the limit does not apply.
    """
    at_once = [replace(launch, host_us=0.0 if i else graph_us) for i, launch in enumerate(launches)]
    return play(at_once, queue_limit=len(launches) + 1, gap_us=gap_us)
