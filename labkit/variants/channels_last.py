"""channels_last: the channels of a pixel lie side by side in memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.variants import SpeedUp, has_batch_norm


class ChannelsLast(SpeedUp):
    """Puts weights and pictures into the memory format NHWC, in which convolution kernels are often faster.

    Differs from the baseline in two seams. `build` converts the weights once, and the model keeps them so. `inputs`
    converts each batch. Shapes and values stay the same.

    Improves: compute time of convolutions, and the transposing kernels around them, above all in 16 bits on GPUs. Does
    not help in float32 on many devices, nor around instance norm, which returns the usual format and so makes the next
    convolution convert: on an H200 the fastest stack in bf16 took 1.15 (batch 1) and 1.33 times (16) as long with it.

    On CPUs some versions of PyTorch compute a wrong gradient of instance norm, for one picture whose gradient comes in
    channels_last. So the gradient is converted before it enters instance norm, except on CUDA GPUs.
    """

    name = "channels_last"
    changes = "weights and pictures are laid out channels last"
    improves = "compute"
    excludes = {"compile": "the compiler chooses memory formats itself"}

    @classmethod
    def why_untried(cls, model: Model) -> str | None:
        if next(model.parameters()).device.type == "cpu" and not has_batch_norm(model):
            return "on processors, instance norm undoes it layer by layer"
        return super().why_untried(model)

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.model.to(memory_format=torch.channels_last)
        if not next(self.model.parameters()).is_cuda:
            for layer in self.model.modules():
                if isinstance(layer, nn.InstanceNorm2d) and _guard not in layer._forward_hooks.values():
                    layer.register_forward_hook(_guard)
        return super().build(betas)

    def inputs(self, real_a: Tensor, real_b: Tensor) -> Batch:
        real_a, real_b = (pictures.contiguous(memory_format=torch.channels_last) for pictures in (real_a, real_b))
        return super().inputs(real_a, real_b)


def _guard(layer: nn.Module, inputs: tuple[Tensor], normalised: Tensor) -> None:
    """A forward hook: the gradient that will enter `layer` is made contiguous."""
    if normalised.requires_grad:
        normalised.register_hook(Tensor.contiguous)
