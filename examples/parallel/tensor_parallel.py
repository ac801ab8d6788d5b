"""Tensor parallel: each rank has a part of the channels inside every residual block, and works on every picture.

    torchrun --nproc-per-node=2 examples/parallel/tensor_parallel.py

This splits the blocks of a small generator, and compares its output and gradients with those of the whole generator.

Source: Shoeybi et al. 2019, "Megatron-LM", section 3, which does the same with the two matrices of a transformer's MLP.
By hand, since `torch.distributed.tensor` (DTensor) computes a wrong result, without an error, for a convolution that is
split by channel, height or width (PyTorch 2.15, pytorch#186129 and #191926).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from labkit import LabkitError, ranks
from labkit.networks import ResidualBlock, ResnetGenerator

# The dimension along which the ranks share a tensor of the block. Every rank has all of the other tensors.
CUTS = {"conv_block.1.weight": 0, "conv_block.1.bias": 0, "conv_block.5.weight": 1}
CUTS |= {f"conv_block.2.{name}": 0 for name in ("weight", "bias", "running_mean", "running_var")}  # batch norm's


class SplitBlock(ResidualBlock):
    """This rank's part of a residual block: (B, channels, H, W) in and out, both whole and the same on every rank.

    The first convolution is split by output channels, the second one by input channels. The norm and the ReLU between
    them take each channel by itself, so the ranks compute on their own until each has a summand of the second
    convolution's result. One all-reduce adds these up. In the backward pass there is one as well, for the gradient of
    the block's input. Batch norm is exact, too: every rank sees the whole batch.

    It saves compute time and memory. It does not help with small pictures or a slow connection: the ranks exchange
    (B, channels, H, W) numbers in either pass, and wait for each other.
    """

    def __init__(self, block: ResidualBlock, norm: str):
        rank, n, state = ranks.number(), ranks.count(), block.state_dict()
        weight = state["conv_block.1.weight"]
        super().__init__(weight.shape[1], norm, weight.shape[0] // n)
        self.to(weight).train(block.training)
        self.load_state_dict({k: x.chunk(n, CUTS[k])[rank] if k in CUTS else x for k, x in state.items()})

    def forward(self, x: Tensor) -> Tensor:
        *inside, second, norm = self.conv_block
        y = ToEveryRank.apply(x)
        for layer in inside:
            y = layer(y)
        y = SumOverRanks.apply(F.conv2d(y, second.weight))
        if second.bias is not None:
            y = y + second.bias.view(-1, 1, 1)  # once, not in every summand
        return x + norm(y)


def split_block(block: ResidualBlock) -> SplitBlock:
    """This rank's part of `block`, with copies of its weights. Every rank gives the same whole block.

    Raises:
        LabkitError: the ranks cannot share the channels evenly, or the block has other layers than a `ResidualBlock`.
    """
    if type(block) is ResidualBlock:
        inner, channels = block.conv_block[1].weight.shape[:2]
        if inner % ranks.count():
            raise LabkitError(f"{ranks.count()} ranks cannot share {inner} channels evenly. Use another width.")
        for norm in ("instance", "batch", "none"):
            if repr(block) == repr(ResidualBlock(channels, norm, inner)):
                return SplitBlock(block, norm)
    raise LabkitError(f"This {type(block).__name__} has other layers than a labkit.networks.ResidualBlock.")


def split_blocks(generator: ResnetGenerator) -> ResnetGenerator:
    """The same generator, of whose residual blocks each rank has its part. Make optimisers after this.

    The gradients of the layers outside of the blocks are the same on every rank.
    """
    for k, layer in enumerate(generator.model):
        if isinstance(layer, ResidualBlock):
            generator.model[k] = split_block(layer)
    return generator


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


def whole_gradients(generator: ResnetGenerator) -> dict[str, Tensor]:
    """The gradients of a generator with split blocks, under the names that they have in the whole generator."""
    gradients = {}
    for k, layer in enumerate(generator.model):
        of_layer = {name: weight.grad for name, weight in layer.named_parameters()}
        if isinstance(layer, SplitBlock):
            of_layer = whole(of_layer)
        gradients |= {f"model.{k}.{name}": gradient for name, gradient in of_layer.items()}
    return gradients


class ToEveryRank(torch.autograd.Function):
    """The identity. In the backward pass the ranks' gradients are added up ("f" in the paper)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return summed(gradient)


class SumOverRanks(torch.autograd.Function):
    """Adds the ranks' summands up, and is the identity in the backward pass ("g" in the paper)."""

    @staticmethod
    def forward(ctx: Any, summand: Tensor) -> Tensor:
        return summed(summand)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def summed(tensor: Tensor) -> Tensor:
    """The sum over the ranks, in new memory."""
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def main() -> None:
    """Prints how far the split generator is from the whole one, and how many of its weights rank 0 has."""
    with ranks.process_group():
        torch.manual_seed(0)  # the same weights and pictures on every rank
        one_device = ResnetGenerator(blocks=3, width=16).double()
        split = split_blocks(copy.deepcopy(one_device))
        pictures = torch.rand(1, 3, 64, 64, dtype=torch.float64) * 2 - 1
        outputs = [generator(pictures) for generator in (split, one_device)]
        for output in outputs:
            output.square().mean().backward()
        gradients = whole_gradients(split)
        right = {name: weight.grad for name, weight in one_device.named_parameters()}
        numbers = [sum(weight.numel() for weight in generator.parameters()) for generator in (split, one_device)]
        if ranks.number() == 0:
            print(f"weights of rank 0: {numbers[0]:,} of {numbers[1]:,}")
            print(f"largest difference of the output: {(outputs[0] - outputs[1]).abs().max():.1e}")
            print(f"largest difference of a gradient: {max((gradients[k] - right[k]).abs().max() for k in right):.1e}")


if __name__ == "__main__":
    main()
