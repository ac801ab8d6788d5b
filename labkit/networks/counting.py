"""How large a network is, and how much work: two things that are often taken for one."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count


class Size(NamedTuple):
    """Parameters of a network, and floating-point operations of one forward pass of one picture."""

    parameters: int
    flops: int  # a multiplication and an addition count as two


def count(network: nn.Module, size: int = 256) -> Size:
    """Counts parameters and, on a (1, 3, size, size) picture, floating-point operations.

    Convolutions are counted, normalisation and activations are not, as is usual. Nothing is computed: the network
    runs on PyTorch's meta device, which knows shapes only.
    """
    shapes_only = copy.deepcopy(network).to("meta")
    with flop_counter() as counter, torch.no_grad():
        shapes_only(torch.empty(1, 3, size, size, device="meta"))
    return Size(sum(weight.numel() for weight in network.parameters()), counter.get_total_flops())


def multiply_adds(in_channels: int, out_channels: int, kernel: int, groups: int = 1) -> int:
    """Multiplications, each with an addition, that a convolution needs for one output pixel, all channels of it.

    Each output channel sees the input channels of its own group. Source: Howard et al. 2017 ("MobileNets"), 3.1.
    """
    return kernel**2 * (in_channels // groups) * out_channels


def flop_counter() -> FlopCounterMode:
    """PyTorch's counter of floating-point operations, silent, and right about grouped convolutions, too."""
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward_flops})


def _backward_flops(
    grad_shape: list[int], picture_shape: list[int], weight_shape: list[int], *others: Any, **_: Any
) -> int:
    """As many for each gradient, the picture's and the weight's, as forward.

    PyTorch's own formula takes the weight of a grouped convolution for as large as that of one without groups.
    """
    transposed, output_mask = others[4], others[7]
    return sum(output_mask[:2]) * conv_flop_count(picture_shape, weight_shape, grad_shape, transposed)
