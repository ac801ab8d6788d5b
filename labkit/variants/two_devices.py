"""two_devices: one generator and one discriminator on each of two GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from labkit.models.cyclegan import Cycle, CycleGANStep, Journey
from labkit.models.model import Model
from labkit.variants import SpeedUp, has_dropout


class TwoDevices(SpeedUp, CycleGANStep):
    """Keeps G_A and D_A on the model's GPU, and moves G_B and D_B to the next one. One process drives both.

    Differs from the baseline in two seams. `build` moves the two networks and gives each two hooks: one takes its
    pictures to the network's GPU, the other one brings the result back. So losses, pools and the batch stay on the main
    GPU, and names in checkpoints stay. The model stays so in other steps made from it. `cycles` starts both ways out
    before both ways back, without `cycle`. A GPU computes in the order of the launches: if one cycle were launched
    after the other, the second GPU would wait for G_A's first fake before it did anything. Autograd sends the gradients
    back over the same way, and launches each GPU's part of the backward pass from a thread of its own.

    Improves: compute time, at best to one half, since each generator makes three of the six passes and each
    discriminator half of the judgements. Also memory on the main GPU, since weights, moments and activations are
    shared. Does not help where the host is the bottleneck: it launches for both GPUs in the forward pass, and there are
    copies besides. Nor does it help much with a slow connection between the GPUs, since the pictures travel. Each way
    back needs the fake of the other GPU, so whichever is late makes the other one wait.
    """

    name = "two_devices"
    changes = "G_B and D_B are on a second GPU"
    improves = "compute, memory"
    needs = "CycleGAN; two GPUs, elsewhere it does nothing; no dropout"
    excludes = {
        "graph": "PyTorch records the work of one GPU into a CUDA graph",
        "streams": "the GPUs run the cycles side by side already, and its streams belong to the first GPU",
        "data_parallel": "the next GPU belongs to the next rank",
        "compile": "the moves between the GPUs would be compiled into the networks, which nobody has tried on two GPUs",
    }

    @classmethod
    def unsuited(cls, model: Model) -> str | None:
        if has_dropout(model):
            return "dropout would draw other random numbers on the second GPU: leave the dropout out"
        return super().unsuited(model)

    @staticmethod
    def inactive(model: Model) -> str | None:
        here = next(model.parameters()).device
        return None if next_device(here) != here else "there is no second GPU here"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        here = next(self.model.parameters()).device
        there = next_device(here)
        self.acts = there != here
        if self.acts:
            for network in (self.model.G_B, self.model.D_B):
                network.to(there)
                if _take_along not in network._forward_pre_hooks.values():
                    network.register_forward_pre_hook(_take_along)
                    network.register_forward_hook(partial(_bring_back, self.model.G_A))
        return super().build(betas)

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        if not self.acts:
            return super().cycles(journeys)
        out = [(go(real), None) if other is None else self.both(go, real, other) for go, _, real, other in journeys]
        return [Cycle(fake, journey.back(fake), same) for journey, (fake, same) in zip(journeys, out, strict=True)]


def next_device(here: torch.device) -> torch.device:
    """The GPU after `here`, and after the last one the first, or `here` itself if there is no other."""
    n = torch.cuda.device_count() if here.type == "cuda" else 1
    return torch.device(here.type, ((here.index or 0) + 1) % n) if n > 1 else here


def _take_along(network: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """A forward pre-hook: the pictures go to the device that the network's weights are on."""
    return (inputs[0].to(next(network.parameters()).device),)


def _bring_back(main: nn.Module, network: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """A forward hook: the result goes to the device of `main`."""
    return output.to(next(main.parameters()).device)
