"""nhwc: the networks run with the channels last, and what lies between two convolutions is two kernels.

The kernels and their gradients are in two files beside this one: `nhwc_norm`, between two convolutions, and
`nhwc_ends`, for the first and the last convolution of a network.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.networks.patchgan import PatchDiscriminator
from labkit.networks.resnet import ResnetGenerator
from labkit.variants import Substitutes
from labkit.variants.nhwc_ends import ALIGNED, channels_as_columns, columns_as_channels
from labkit.variants.nhwc_norm import norm


class NHWC(Substitutes):
    """Runs ResNet generators and PatchGANs with the channels last, from the first layer to the last.

    Differs from the baseline in one seam, `learn`: while it runs, functions take the place of the networks' forward
    passes, with the same weights:

    - Instance norm, activation, the sum with the skip and the reflection padding of the next convolution are two
      kernels: one reads a picture for its mean and variance, one reads it again and writes the padded result. The
      gradient is two kernels, too. PyTorch's own layers convert to NCHW before each norm, and back after it.
    - A bias before instance norm is left out, since the mean takes it away. Its gradient is zero, and not rounding.
    - A convolution with 3 channels in or out is one with 21, of one column in place of 7.
    - All weights are cast together, where autocast casts each by itself.

    Improves: memory traffic, launches, conversions of layouts. Does not help on a processor, where it does nothing
    unless TRITON_INTERPRET=1 has Triton's interpreter run the kernels, for tests, nor at small batches without "graph":
    a launch from Python costs the host more than one of PyTorch's. In 16 bits only what leaves a kernel is rounded; the
    gradients of a weight that is used twice add up in 16 bits. Second derivatives are refused.
    """

    name = "nhwc"
    changes = "channels last throughout; norm, activation, skip and padding are two kernels, written in Triton"
    improves = "memory traffic, launches"
    needs = "ResNet generators, PatchGANs, instance norm; a GPU and Triton, elsewhere it does nothing"
    excludes = {
        "compile": "the compiler fuses these layers itself, and cannot look into these kernels",
        "channels_last": "it lays out weights and pictures itself",
        "out_of_place": "it runs no layer in place, so there is none to change",
        "subpixel": "both replace the last convolution",
        "winograd": "that one's kernels are for processors",
    }

    @classmethod
    def why_unsuited(cls, model: Model) -> str | None:
        for name, network in model.named_children():
            if not is_known(network):
                return f"it knows ResNet generators and PatchGANs with instance norm only, and {name} is neither"
        if next(model.parameters()).is_cuda and importlib.util.find_spec("triton") is None:
            return "its kernels need Triton: pip install triton, or leave it out"
        return None

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        acts = not next(model.parameters()).is_cpu or os.environ.get("TRITON_INTERPRET") == "1"
        return None if acts else "Triton's kernels need a GPU"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.ready: dict[nn.Parameter, Tensor] = {}  # of each weight, what the convolutions take
        if NHWC.why_inactive(self.model) is None:
            self.model.to(memory_format=torch.channels_last)  # so that one kernel casts them all
            for network in self.model.children():
                run = generator if isinstance(network, ResnetGenerator) else discriminator
                self.forwards[network] = functools.partial(run, network, self.ready)
        return super().build(betas)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        kinds = [ResnetGenerator, PatchDiscriminator] if player == "generators" else [PatchDiscriminator]
        for kind in kinds if self.forwards else []:  # apart: who learns asks for no gradient of the others' weights
            self.ready |= prepared([one for one in self.forwards if isinstance(one, kind)], self.computes_in)
        try:
            return super().learn(player, batch)
        finally:
            self.ready.clear()  # not sooner: the backward pass may read them on another stream


def is_known(network: nn.Module) -> bool:
    """True for a ResNet generator of plain residual blocks or a PatchGAN, with instance norm: it prints as one."""
    layers = convolutions(network)
    with torch.device("meta"):
        if type(network) is ResnetGenerator:
            ends = layers[0].in_channels, layers[-1].out_channels
            twin: nn.Module = ResnetGenerator((len(layers) - 6) // 2, layers[0].out_channels, channels=ends)
        elif type(network) is PatchDiscriminator:
            twin = PatchDiscriminator(len(layers) - 2, layers[0].out_channels, channels=layers[0].in_channels)
        else:
            return False
    return str(network) == str(twin)


def convolutions(network: nn.Module) -> list[Any]:
    """All convolutions of a network, in their order."""
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]


# ---- the networks


def generator(network: nn.Module, ready: dict[nn.Parameter, Tensor], pictures: Tensor) -> Tensor:
    """The translations of pictures (N, C, H, W), as `ResnetGenerator.forward` computes them."""
    *layers, last = convolutions(network)
    first, down, further, *blocks, up, higher = (ready[layer.weight] for layer in layers)
    x, _ = norm(F.conv2d(columns_as_channels(pictures, first.dtype, 7, 1, 3, True), first))
    x, _ = norm(F.conv2d(x, down, stride=2, padding=1))
    x, skip = norm(F.conv2d(x, further, stride=2, padding=1), pad=int(bool(blocks)))
    for left in reversed(range(len(blocks) // 2)):
        x, _ = norm(F.conv2d(x, blocks[-2 * left - 2]), pad=1)
        x, skip = norm(F.conv2d(x, blocks[-2 * left - 1]), skip, pad=int(left > 0))
    x, _ = norm(F.conv_transpose2d(x, up, stride=2, padding=1, output_padding=1))
    x, _ = norm(F.conv_transpose2d(x, higher, stride=2, padding=1, output_padding=1), pad=3)
    return channels_as_columns(F.conv2d(x, ready[last.weight]), last.bias, 7, 0, True)


def discriminator(network: nn.Module, ready: dict[nn.Parameter, Tensor], pictures: Tensor) -> Tensor:
    """The verdicts on pictures (N, C, H, W), as `PatchDiscriminator.forward` computes them."""
    first, *layers, last = convolutions(network)
    weight = ready[first.weight]
    x = F.conv2d(columns_as_channels(pictures, weight.dtype, 4, 2, 1, False), weight, None, (2, 1), (1, 0))
    x = F.leaky_relu(x + first.bias.to(x.dtype)[:, None, None], 0.2)
    for layer in layers:
        x, _ = norm(F.conv2d(x, ready[layer.weight], stride=layer.stride, padding=1), slope=0.2)
    return channels_as_columns(F.conv2d(x, ready[last.weight], padding=(1, 0)), last.bias, 4, 1, False)


# ---- their weights


def prepared(networks: Sequence[nn.Module], dtype: torch.dtype | None) -> dict[nn.Parameter, Tensor]:
    """Of each weight of networks of a kind, what the functions above multiply with, of this type or (None) its own."""
    rows = [convolutions(network) for network in networks]
    unnormed = 1 if isinstance(networks[0], PatchDiscriminator) else 0  # layers at the beginning; the last is, too
    weights = [layer.weight for layers in rows for layer in layers]
    idle = [layer.bias for layers in rows for layer in layers[unnormed:-1]]
    ready = dict(zip(weights, Cast.apply(dtype or weights[0].dtype, idle, *weights, *idle), strict=True))
    for layers in rows:
        first, last = layers[0].weight, layers[-1].weight
        ready[first] = aligned(ready[first].permute(0, 3, 1, 2).flatten(1, 2).unsqueeze(3), 1)
        ready[last] = aligned(ready[last].permute(3, 0, 1, 2).flatten(0, 1).unsqueeze(3), 0)
    return ready


def aligned(weight: Tensor, dim: int) -> Tensor:
    """A weight with the channels last, and zeros for more of them in this dimension, to a multiple of 8."""
    more = [0, 0] * (3 - dim) + [0, -weight.shape[dim] % ALIGNED]
    return F.pad(weight, more).clone(memory_format=torch.channels_last)  # a view may have other strides for its width 1


class Cast(torch.autograd.Function):
    """Copies of weights in another type, made together. The biases in `idle` get zeros as their gradients."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, idle: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.idle, ctx.weights = idle, tensors[: len(tensors) - len(idle)]
        copies = [torch.empty_like(weight, dtype=dtype) for weight in ctx.weights]
        torch._foreach_copy_(copies, list(ctx.weights))
        return tuple(copies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        pairs = [(weight, one) for weight, one in zip(ctx.weights, gradients, strict=True) if one is not None]
        copies = [torch.empty_like(weight) for weight, _ in pairs]
        torch._foreach_copy_(copies, [like(*pair) for pair in pairs])
        rest = iter(copies)
        sizes = [len(bias) for bias in ctx.idle]
        zeros = ctx.weights[0].new_zeros(sum(sizes)).split(sizes)
        return None, None, *(None if one is None else next(rest) for one in gradients), *zeros


def like(weight: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, laid out as the weight is: one that differs would keep all of them from being copied together."""
    same = gradient.stride() == weight.stride()
    return gradient if same else torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)
