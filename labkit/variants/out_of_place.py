"""out_of_place: the activation after an instance norm writes its result beside its input."""

from __future__ import annotations

import copy

import torch
from torch import nn

from labkit.variants import Substitutes
from labkit.variants.norms import norms


class OutOfPlace(Substitutes):
    """Lets ReLU and LeakyReLU that follow an instance norm work out of place.

    Differs from the baseline in one seam, `learn`: while it runs, those layers are not in place. In place saves memory
    elsewhere, but PyTorch's instance norm returns a view: autograd then has to copy the gradient of the whole tensor
    and fill the copy with zeros before it can put the activation's gradient in (its node is called CopySlices). Other
    activations stay as they are: in a U-Net the skip carries the picture that an activation has changed in place.

    Improves: memory traffic and launches of the backward pass. Does not help where nothing follows an instance norm in
    place: batch norm, no norm, a U-Net's generators.
    """

    name = "out_of_place"
    changes = "activations after instance norm are not in place"
    improves = "copies and fills in the backward pass"
    needs = "instance norm"
    excludes = {"compile": "compiled code has no in-place operations left to take out"}

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        for _, after, _ in norms(self.model):
            if isinstance(after, nn.ReLU | nn.LeakyReLU) and after.inplace:
                beside = copy.copy(after)
                beside.inplace = False
                self.forwards[after] = beside.forward
                self.together.add(after)
        return super().build(betas)
