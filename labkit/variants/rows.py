"""rows: a convolution with few output channels is computed row by row of its kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from labkit.variants import SpeedUp

VECTOR = 8  # float32 numbers that a processor with AVX2 computes at once: a convolution's output channels


class Rowwise(nn.Conv2d):
    """The same convolution: each row of the kernel is one of its own, and their results are shifted and added."""

    def _conv_forward(self, picture: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        outputs, inputs, rows, columns = weight.shape
        row_by_row = weight.permute(2, 0, 1, 3).reshape(rows * outputs, inputs, 1, columns)
        parts = conv2d(picture, row_by_row, padding=self.padding).unflatten(1, (rows, outputs)).unbind(1)
        height = parts[0].shape[2] - rows + 1
        total = sum(part.narrow(2, row, height) for row, part in enumerate(parts))
        return total if bias is None else total + bias.view(-1, 1, 1)


class Rows(SpeedUp):
    """Computes convolutions that have fewer than eight output channels row by row of their kernel.

    Processors compute several output channels at once, and leave most of their units idle in a generator's last layer,
    which has three, and a discriminator's, which has one. Differs from the baseline in `build`, which turns such layers
    into `Rowwise` ones: the 7x7 convolution to 3 channels becomes a 1x7 convolution to 21, whose seven groups are
    shifted by a row each and added. The model keeps them so. Source: Vasudevan, Anderson & Gregg 2017, "Parallel
    Multi Channel Convolution using General Matrix Multiplication" (kn2row), here by rows instead of single weights.

    Improves: compute, on a processor, of these layers alone: a small part of a step, and the smaller, the broader the
    networks. Does not help on GPUs, whose libraries have kernels for such layers, nor beside "compile".
    """

    name = "rows"
    changes = "convolutions to few channels are computed row by row of their kernel"
    improves = "compute of the last layers"
    needs = "nothing; it pays on a CPU"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        for layer in self.model.modules():
            if type(layer) is nn.Conv2d and layer.out_channels < VECTOR and _plain(layer):
                layer.__class__ = Rowwise
        return super().build(betas)


def _plain(convolution: nn.Conv2d) -> bool:
    """True if the kernel has several rows, and neither strides, holes, groups nor padding other than with zeros."""
    rows, steps = convolution.kernel_size[0], (convolution.stride, convolution.dilation, convolution.groups)
    padded = convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)
    return rows > 1 and steps == ((1, 1), (1, 1), 1) and padded
