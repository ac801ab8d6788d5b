"""batched: pictures that go through the same network at the same time go through it together."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.models.step import Forward
from labkit.variants import SpeedUp


class Batched(SpeedUp):
    """Runs a generator on (real, other) in one pass, and a discriminator on (real, fake) in one pass.

    Differs from the baseline in `both`, which puts two batches through a network as one. It is exact since no layer
    looks beyond one picture: instance norm takes its mean and variance from each picture by itself. Batch norm would
    mix the two halves. The way back of a cycle stays alone: its input is only known after the first pass. So do
    pictures of different sizes.

    Improves: launches, and kernels too small to fill the device. Does not help where one pass fills the device already,
    and memory peaks higher, since more is computed together.
    """

    name = "batched"
    changes = "real and other, real and fake pass through a network as one batch"
    improves = "launches, idle"
    needs = "not batch norm"
    batch_norm_would = "take its mean over pictures of two kinds"

    def both(self, network: Forward, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        if first.shape != second.shape:
            return super().both(network, first, second)
        of_first, of_second = network(torch.cat([first, second])).chunk(2)
        return of_first, of_second
