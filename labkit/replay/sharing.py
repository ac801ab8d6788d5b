"""Two streams that share a GPU's multiprocessors, as a model: SIMULATED time, in microseconds.

What the model leaves out: the host (every kernel is launched already), pauses between kernels, memory bandwidth, and
how a GPU really shares. That hands multiprocessors to blocks as they become free, so that a kernel which came first
can keep the other one waiting; here both slow down alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from labkit.replay.queue import KernelTimes


class Kernel(NamedTuple):
    """A kernel's duration when alone, in microseconds, and the share of the multiprocessors it then fills, 0 to 1."""

    us: float
    share: float


def overlap(kernels_a: Sequence[Kernel], kernels_b: Sequence[Kernel]) -> KernelTimes:
    """Runs the kernels of two streams at the same time, each stream's in order; first those of stream 0, then of 1.

    While two kernels together need more than all multiprocessors, both run slower, by the sum of their shares.
    """
    queues = [list(kernels_a), list(kernels_b)]
    ends: list[list[float]] = [[], []]
    left = [queue[0].us if queue else 0.0 for queue in queues]  # of the running kernel, in its time when alone
    now = 0.0
    while running := [s for s in (0, 1) if len(ends[s]) < len(queues[s])]:
        slowdown = max(1.0, sum(queues[s][len(ends[s])].share for s in running))
        passed = min(left[s] for s in running)
        now += passed * slowdown
        for s in running:
            left[s] -= passed
            if left[s] < 1e-9:  # done, but for rounding
                ends[s].append(now)
                left[s] = queues[s][len(ends[s])].us if len(ends[s]) < len(queues[s]) else 0.0
    starts = [start for stream_ends in ends for start in [0.0, *stream_ends][: len(stream_ends)]]
    stream = np.repeat([0, 1], [len(stream_ends) for stream_ends in ends])
    return KernelTimes(np.array(starts), np.array(ends[0] + ends[1]), stream)
