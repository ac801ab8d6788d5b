"""recompute: what lies inside a generator is not kept for the backward pass, but computed again."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from labkit.step import Cycle
from labkit.variants.common import SpeedUp, without_cycles


class Recompute(SpeedUp):
    """Keeps only the input of each generator pass, and runs the pass a second time when its gradients are due.

    Differs from the baseline in one seam, `one_cycle`, where it puts a checkpoint round each generator. Source: Chen
    et al. 2016, "Training Deep Nets with Sublinear Memory Cost". The state of the random numbers is only put back
    for the second run if there is dropout: to read it would keep the step out of a CUDA graph.

    Moves: memory for activations, to about that of a single pass, so that larger batches or pictures fit. It does not
    make a step faster by itself: the generators' forward passes run twice.
    """

    name = "recompute"
    place = 40
    seam = "one_cycle"
    changes = "activations inside generators are computed again in the backward pass"
    moves = "memory"
    needs = "CycleGAN; time for a second forward pass of the generators"
    tolerance = "exact"

    @staticmethod
    def unsuited(model: nn.Module) -> str | None:
        return without_cycles(model)

    @staticmethod
    def untried(model: nn.Module) -> str:
        return "it saves memory, not time"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.has_dropout = any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in self.model.modules())
        return super().build(betas)

    def one_cycle(self, go: nn.Module, back: nn.Module, real: Tensor, other: Tensor | None) -> Cycle:
        go, back = (
            partial(checkpoint, generator, use_reentrant=False, preserve_rng_state=self.has_dropout)
            for generator in (go, back)
        )
        return super().one_cycle(go, back, real, other)
