"""The yardstick of a speedrun: a fixed mix of work, whose CPU time says how fast a processor is at this moment.

Processors differ, and the same one is slower while others compute beside it. So the judge times some of this work
before and after each training, and expresses the training's CPU time in *calibrated seconds*: the seconds that it would
have taken at the speed at which a portion of this work takes `PORTION` seconds.

The mix is that of a training step: convolutions of a ResNet generator, instance norm, a backward pass and Adam, with
calls as small as those of such networks. It uses nothing of labkit's networks, so that a faster labkit does not change
it. Change it, and no record can be compared with an earlier one.
"""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn import functional as F

PORTION = 0.050  # CPU seconds of a portion on the processor that defines the calibrated second
STEPS = 6  # training steps in a portion
WARMUP = 5  # portions


class Yardstick:
    """The work. Each call does a portion of it and returns its CPU seconds, which compare on one thread."""

    def __init__(self) -> None:
        def block(before: int, after: int, stride: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(before, after, 3, stride, 1), nn.InstanceNorm2d(after), nn.ReLU()]

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.network = nn.Sequential(
                *block(3, 16),
                *block(16, 32, 2),
                *block(32, 64, 2),
                *block(64, 64),
                *block(64, 64),
                nn.Conv2d(64, 48, 1),
            )
            self.picture = torch.rand(1, 3, 64, 64) * 2 - 1
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.0)  # the same numbers in every portion
        self.target = F.pixel_unshuffle(self.picture, 4)
        for _ in range(WARMUP):
            self()

    def __call__(self) -> float:
        started = time.process_time()
        for _ in range(STEPS):
            F.l1_loss(self.network(self.picture).tanh(), self.target).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return time.process_time() - started
