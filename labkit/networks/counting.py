"""How large a network is, and how much work: two things that are often taken for one."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


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
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        shapes_only(torch.empty(1, 3, size, size, device="meta"))
    return Size(sum(weight.numel() for weight in network.parameters()), counter.get_total_flops())
