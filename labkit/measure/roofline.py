"""How much work a network or a step has, and how fast this device can do it at most."""

from __future__ import annotations

import copy
import statistics
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from labkit.measure.record import Pair, preserving_state
from labkit.measure.timing import alternate
from labkit.models.step import Step
from labkit.networks.layers import channels_of


class Size(NamedTuple):
    """Parameters of a network, and floating-point operations (FLOPs) of one forward pass of one picture."""

    parameters: int
    flops: int  # a multiplication and an addition count as two


def count(network: nn.Module, size: int = 256) -> Size:
    """Counts parameters and, on a picture of `size` by `size` pixels, floating-point operations.

    Convolutions are counted, but normalisation and activations are not, as is usual. Nothing is computed: the network
    runs on PyTorch's meta device, which knows shapes only.
    """
    shapes_only = copy.deepcopy(network).to("meta")
    with flop_counter() as counter, torch.no_grad():
        shapes_only(torch.empty(1, channels_of(network), size, size, device="meta"))
    return Size(sum(weight.numel() for weight in network.parameters()), counter.get_total_flops())


def multiply_adds(in_channels: int, out_channels: int, kernel: int, groups: int = 1) -> int:
    """Multiplications, each with an addition, that a convolution needs for all channels of one output pixel.

    Each output channel reads the input channels of its own group. Source: Howard et al. 2017 ("MobileNets"), 3.1.
    """
    return kernel**2 * (in_channels // groups) * out_channels


def flop_counter() -> FlopCounterMode:
    """PyTorch's counter of floating-point operations, silent, and corrected for grouped convolutions."""
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward_flops})


def _backward_flops(
    grad_shape: list[int], picture_shape: list[int], weight_shape: list[int], *others: Any, **_: Any
) -> int:
    """The gradients of picture and weight, of those that are asked for, take as many FLOPs each as the forward pass.

    PyTorch's own formula counts the weight of a grouped convolution as large as a weight without groups.
    """
    transposed, output_mask = others[4], others[7]
    return sum(output_mask[:2]) * conv_flop_count(picture_shape, weight_shape, grad_shape, transposed)


FLOPS = flop_counter().flop_registry  # by operator, the formula for its floating-point operations


def step_flops(step: Step, batch: Pair) -> int:
    """Floating-point operations of one whole step, forward and backward. A multiplication and an addition are two.

    Counts convolutions and matrix products, as is usual. Runs the step once, and restores its state.
    """
    with preserving_state(step), flop_counter() as counter:
        step(*batch)
    return counter.get_total_flops()


def matmul_rate(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a large matrix product: the most that arithmetic can reach on this device.

    The numbers are random, since zeros take less power and run faster on a GPU. TF32 is used if its flag is set.
    """
    n = 8192 if torch.device(device).type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    seconds = alternate({"matmul": lambda: a @ b}, rounds=10)["matmul"]
    return 2 * n**3 / statistics.median(seconds)


def copy_rate(device: torch.device | str = "cpu") -> float:
    """Bytes/s of a copy within the device's memory. Each byte counts twice, once read and once written."""
    n = 2**28 if torch.device(device).type == "cuda" else 2**25
    source = torch.ones(n, device=device)
    target = torch.empty_like(source)
    seconds = alternate({"copy": lambda: target.copy_(source)}, rounds=10)["copy"]
    return 2 * source.nbytes / statistics.median(seconds)


def roofline_seconds(flops: float, bytes_moved: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The fewest seconds this work can take: arithmetic and memory traffic overlap, so the longer of the two counts.

    Source: Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", 2009.
    """
    return max(flops / flops_per_s, bytes_moved / bytes_per_s)


def amdahl(share: float, factor: float) -> float:
    """How many times faster the whole gets if the part that takes `share` of its time gets `factor` times faster.

    `share` is in [0, 1), `factor` positive. An infinite factor gives the most we can gain by work on this part. The
    law holds for parts that run one after another, not for parts that overlap. Source: Amdahl 1967.
    """
    return 1 / (1 - share + share / factor)
