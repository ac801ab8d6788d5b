"""The yardstick of a speedrun: a fixed mix of work, whose CPU time says how fast a processor is at this moment.

Processors differ, and the same one is slower while others compute beside it. So the judge stops an entry four times a
second, times a little of this work in a process of its own, and expresses the entry's CPU time in *calibrated
seconds*: those that it would have taken at the speed at which a portion of this work takes `PORTION` seconds.

The mix is that of a training step: convolutions of a ResNet generator, instance norm, a backward pass and Adam, with
calls as small as those of such networks. It uses nothing of labkit's networks, so that a faster labkit does not change
it. Change it, and no record can be compared with an earlier one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

from labkit.speedrun.processes import environment

PORTION = 0.050  # CPU seconds of a portion on the processor that defines the calibrated second
STEPS = 6  # training steps in a portion
WARMUP = 5  # portions


class Yardstick:
    """The work. Each call does a portion of it, and returns its CPU seconds."""

    def __init__(self) -> None:
        torch.manual_seed(0)

        def block(before: int, after: int, stride: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(before, after, 3, stride, 1), nn.InstanceNorm2d(after), nn.ReLU()]

        self.network = nn.Sequential(
            *block(3, 16), *block(16, 32, 2), *block(32, 64, 2), *block(64, 64), *block(64, 64), nn.Conv2d(64, 48, 1)
        )
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.0)  # the same numbers in every portion
        self.picture = torch.rand(1, 3, 64, 64) * 2 - 1
        self.target = F.pixel_unshuffle(self.picture, 4)

    def __call__(self) -> float:
        started = time.process_time()
        for _ in range(STEPS):
            F.l1_loss(self.network(self.picture).tanh(), self.target).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return time.process_time() - started


class Calibrator:
    """A process that does a portion of the work whenever it is asked to, and keeps the CPU seconds of each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.portions: list[float] = []

    def measure(self) -> None:
        """Has a portion done, and waits for it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.portions.append(float(self.process.stdout.readline()))

    def calibrated(self, seconds: float, since: int) -> float:
        """CPU seconds in calibrated seconds. They were spent while all portions but the first `since` were measured.

        The median of the portions counts: beside other programs single ones take twice as long.
        """
        return seconds * PORTION / statistics.median(self.portions[since:])


@contextmanager
def calibrator() -> Iterator[Calibrator]:
    """A `Calibrator` that is warm; its process ends with the block."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdout.readline()
            yield Calibrator(process)
        finally:
            process.stdin.close()  # which ends its loop


if __name__ == "__main__":
    torch.set_num_threads(1)
    yardstick = Yardstick()
    for _ in range(WARMUP):
        yardstick()
    print("warm", flush=True)
    for _asked in sys.stdin:
        print(yardstick(), flush=True)
