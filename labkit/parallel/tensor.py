"""A residual block in tensor parallel form: each rank has a part of both convolutions, and works on every picture.

Source: Shoeybi et al. 2019, "Megatron-LM", section 3, which does the same with the two matrices of a transformer's MLP.
By hand, since `torch.distributed.tensor` (DTensor) computes a wrong result, without an error, for a convolution that is
split by channel, height or width (PyTorch 2.15, pytorch#186129 and #191926, tests/parallel/test_model_parallel.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from labkit import ranks
from labkit.networks.resnet import ResidualBlock
from labtrace.errors import LabkitError

# The dimension along which the ranks share a tensor of the block; every rank has the others whole.
CUTS = {"conv_block.1.weight": 0, "conv_block.1.bias": 0, "conv_block.5.weight": 1}
CUTS |= {f"conv_block.2.{name}": 0 for name in ("weight", "bias", "running_mean", "running_var")}  # batch norm's


class SplitBlock(ResidualBlock):
    """This rank's part of a residual block: (B, channels, H, W) in and out, both whole and the same on every rank.

    The first convolution is split by output channels, the second one by input channels. The norm and the ReLU between
    them take each channel by itself, so the ranks compute on their own until each has a summand of the second
    convolution's result. One all-reduce adds these up. In the backward pass there is one as well, for the gradient of
    the block's input. Batch norm is exact, too: every rank sees the whole batch.

    Names in the state_dict are those of the whole block, `inner` channels are divided by the number of ranks.

    Improves: compute time and memory of the block. Does not help with small pictures or a slow connection: the ranks
    exchange (B, channels, H, W) numbers in either pass, and wait for each other.
    """

    def __init__(self, block: ResidualBlock, norm: str):
        rank, n, state = ranks.number(), ranks.count(), block.state_dict()
        weight = state["conv_block.1.weight"]
        super().__init__(weight.shape[1], norm, weight.shape[0] // n)
        self.to(weight).train(block.training)
        self.load_state_dict({k: x.chunk(n, CUTS[k])[rank] if k in CUTS else x for k, x in state.items()})

    def forward(self, x: Tensor) -> Tensor:
        layers: list[Any] = list(self.conv_block)
        *inside, second, norm = layers
        y = _ToEveryRank.apply(x)
        for layer in inside:
            y = layer(y)
        y = _SumOverRanks.apply(F.conv2d(y, second.weight))
        if second.bias is not None:
            y = y + second.bias.view(-1, 1, 1)  # once, not in every summand
        return x + norm(y)


def split_block(block: ResidualBlock) -> SplitBlock:
    """This rank's part of `block`, which all ranks compute together: see `SplitBlock`.

    Every rank gives the same whole block. Its weights are copied, so make optimisers after the split. For a whole
    generator replace each block: ``generator.model[k] = split_block(generator.model[k])``. The gradients of the other
    layers are then the same on every rank.

    Args:
        block: a `labkit.networks.ResidualBlock`, with any norm.

    Raises:
        LabkitError: the ranks cannot share the channels evenly, or the block has other layers than a `ResidualBlock`.
    """
    norm, n = _norm_of(block), ranks.count()
    inner = len(block.get_parameter("conv_block.1.weight"))
    if inner % n:
        raise LabkitError(
            f"{n} ranks cannot share the {inner} channels between the block's convolutions evenly: use a block with a "
            f"multiple of {n} channels there, ResidualBlock(channels, inner=...)."
        )
    return SplitBlock(block, norm)


def whole(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the whole block from those of a `SplitBlock`: its `state_dict()`, or its gradients by name.

    Every rank has to call it, and gets all of them.
    """
    of_block = {}
    for name, tensor in tensors.items():
        of_block[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
        if name in CUTS:
            parts = [torch.empty_like(of_block[name]) for _ in range(ranks.count())]
            dist.all_gather(parts, of_block[name])
            of_block[name] = torch.cat(parts, CUTS[name])
    return of_block


def _norm_of(block: nn.Module) -> str:
    """The name of a residual block's norm. Raises `LabkitError` if the block has other layers than labkit's."""
    if type(block) is ResidualBlock:
        inner, channels = block.get_parameter("conv_block.1.weight").shape[:2]
        for norm in ("instance", "batch", "none"):
            if repr(block) == repr(ResidualBlock(channels, norm, inner)):
                return norm
    raise LabkitError(
        f"split_block takes a labkit.networks.ResidualBlock with its own layers, not this {type(block).__name__}. "
        "Between the two convolutions a layer that looks across channels (group norm, a shuffle, squeeze-and-"
        "excitation) would see a rank's part of them only, and dropout would draw other numbers on each rank."
    )


class _ToEveryRank(torch.autograd.Function):
    """The identity. In the backward pass the ranks' gradients are added up ("f" in the paper)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _summed(gradients[0])


class _SumOverRanks(torch.autograd.Function):
    """Adds the ranks' summands up, and is the identity in the backward pass ("g" in the paper)."""

    @staticmethod
    def forward(ctx: Any, summand: Tensor) -> Tensor:
        return _summed(summand)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


def _summed(tensor: Tensor) -> Tensor:
    """The sum over the ranks, in new memory."""
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
