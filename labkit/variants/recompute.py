"""recompute: activations inside a generator are not kept for the backward pass, but computed again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from labkit.models.cyclegan import Cycle, CycleGANStep, Journey
from labkit.models.step import Forward
from labkit.variants import SpeedUp, has_dropout, is_hooked


class Recompute(SpeedUp, CycleGANStep):
    """Keeps only the input of each generator pass, and runs the pass a second time when its gradients are due.

    Differs from the baseline in `cycles`, where it puts a checkpoint around each generator. Source: Chen
    et al. 2016, "Training Deep Nets with Sublinear Memory Cost". The state of the random numbers is only put back
    for the second run if there is dropout, a hook or a custom layer: to read it would keep a step from a CUDA graph.

    Improves: memory for activations, which falls to about that of a single pass, so that larger batches or pictures
    fit. It does not make a step faster by itself: the generators' forward passes run twice, and a layer of your own
    that counts its calls counts both.
    """

    name = "recompute"
    changes = "activations inside generators are computed again in the backward pass"
    improves = "memory"
    needs = "CycleGAN; time for a second forward pass of the generators; not with batch norm"
    batch_norm_would = "count each batch twice in its running statistics"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        layers = list(self.model.modules())
        ours = all(type(layer).__module__.startswith(("torch.", "labkit.")) for layer in layers)
        # What is not ours may draw anywhere.
        self.draws = bool(self.model.custom) or not ours or is_hooked(layers) or has_dropout(self.model)
        return super().build(betas)

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        def checkpointed(generator: Forward) -> Forward:
            return partial(checkpoint, generator, use_reentrant=False, preserve_rng_state=self.draws)

        return super().cycles(
            [journey._replace(go=checkpointed(journey.go), back=checkpointed(journey.back)) for journey in journeys]
        )
