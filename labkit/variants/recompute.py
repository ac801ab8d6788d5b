"""recompute: activations inside a generator are not kept for the backward pass, but computed again."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from labkit.model import Model
from labkit.models.cyclegan import Cycle, CycleGANStep
from labkit.step import Network, SpeedUp
from labkit.variants.common import without_cycles


class Recompute(SpeedUp, CycleGANStep):
    """Keeps only the input of each generator pass, and runs the pass a second time when its gradients are due.

    Differs from the baseline in `cycle`, where it puts a checkpoint round each generator. Source: Chen
    et al. 2016, "Training Deep Nets with Sublinear Memory Cost". The state of the random numbers is only put back
    for the second run if there is dropout: to read it would keep the step out of a CUDA graph.

    Improves: memory for activations, which falls to about that of a single pass, so that larger batches or pictures
    fit. It does not make a step faster by itself: the generators' forward passes run twice.
    """

    name = "recompute"
    changes = "activations inside generators are computed again in the backward pass"
    improves = "memory"
    needs = "CycleGAN; time for a second forward pass of the generators"
    tolerance = "exact"

    @staticmethod
    def unsuited(model: Model) -> str | None:
        return without_cycles(model)

    @staticmethod
    def skip_in_autotune(model: Model) -> str:
        return "it saves memory, not time"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Adam]:
        self.has_dropout = any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in self.model.modules())
        return super().build(betas)

    def cycle(self, go: Network, back: Network, real: Tensor, other: Tensor | None) -> Cycle:
        go, back = (
            partial(checkpoint, generator, use_reentrant=False, preserve_rng_state=self.has_dropout)
            for generator in (go, back)
        )
        return super().cycle(go, back, real, other)
