"""batched: pictures that go through the same network at the same time go through it together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit.step import Cycle
from labkit.variants.common import SpeedUp, has_batch_norm


class Batched(SpeedUp):
    """Runs a generator on (real, other) in one pass, and a discriminator on (real, fake) in one pass.

    Differs from the baseline in two seams, `one_cycle` and `both`, through which `judge` goes. It is exact since no
    layer looks beyond one picture: instance norm takes its mean and variance from each picture by itself. Batch norm
    would mix the two halves.
    The way back of a cycle stays alone: its input is only known after the first pass.

    Moves: launches, and kernels too small to fill the device. Does not help where one pass fills the device already,
    and memory peaks higher, since more is computed at once.
    """

    name = "batched"
    place = 45
    seam = "one_cycle, both"
    changes = "real and other, real and fake pass through a network as one batch"
    moves = "launches, idle"
    needs = "not batch norm"
    tolerance = "exact"

    @staticmethod
    def unsuited(model: nn.Module) -> str | None:
        if has_batch_norm(model):
            return "batch norm would take its mean over pictures of two kinds: use instance norm"
        return None

    def one_cycle(self, go: nn.Module, back: nn.Module, real: Tensor, other: Tensor | None) -> Cycle:
        if other is None:
            return super().one_cycle(go, back, real, other)
        fake, same = go(torch.cat([real, other])).chunk(2)
        return Cycle(fake, back(fake), same)

    def both(self, network: nn.Module, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        of_first, of_second = network(torch.cat([first, second])).chunk(2)
        return of_first, of_second
