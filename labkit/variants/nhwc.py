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
    - A bias before instance norm is left out, since the mean takes it away. Its gradient is exactly zero, which the
      baseline's is but for rounding.
    - A network's first and last convolution, with few channels on one side, take columns for channels: see `nhwc_ends`.
    - The generators' weights are cast together, and the discriminators', where autocast casts each by itself.

    Improves: memory traffic, launches, conversions of layouts. At small batches it needs "graph" to help: a launch from
    Python costs the host more than one of PyTorch's. It does nothing on a processor. (For tests TRITON_INTERPRET=1 has
    Triton's interpreter run the kernels there, slowly.) In 16 bits the results of a kernel are rounded, but nothing
    within; the gradients of a network that runs several times in a step add up in 16 bits. Second derivatives are
    refused.
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
                known = "ResNet generators with transposed convolutions and PatchGANs with instance norm"
                return f"it knows {known} only, and {name} is neither"
        if next(model.parameters()).is_cuda and importlib.util.find_spec("triton") is None:
            return "its kernels need Triton: pip install triton, or leave it out"
        return None

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        acts = not next(model.parameters()).is_cpu or os.environ.get("TRITON_INTERPRET") == "1"
        return None if acts else "Triton's kernels need a GPU"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.ready: dict[nn.Parameter, Tensor] = {}  # each weight as the convolutions take it, while a player learns
        if NHWC.why_inactive(self.model) is None:
            self.model.to(memory_format=torch.channels_last)  # as gradients come, so that one kernel casts them all
            for network in self.model.children():
                run = generator if isinstance(network, ResnetGenerator) else discriminator
                self.forwards[network] = functools.partial(run, network, self.ready)
        return super().build(betas)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        # Apart: autograd would compute gradients for all that are cast together, and each player learns one kind only.
        # The discriminators learn from pictures that the generators have made before.
        for kind in (ResnetGenerator, PatchDiscriminator) if self.forwards else ():
            if player == "generators" or kind is PatchDiscriminator:
                self.ready |= prepared([one for one in self.forwards if isinstance(one, kind)], self.computes_in)
        try:
            return super().learn(player, batch)
        finally:
            # Not before: the backward pass would free them one by one, and their memory would be handed out again while
            # the other stream of "streams" still reads it.
            self.ready.clear()


def is_known(network: nn.Module) -> bool:
    """True for a ResNet generator of plain residual blocks or a PatchGAN, with instance norm.

    It is compared with a new one of its size, as they print: a layer that somebody has changed or put in shows there.
    """
    layers = convolutions(network)
    with torch.device("meta"):
        if type(network) is ResnetGenerator:
            ends = layers[0].in_channels, layers[-1].out_channels
            # Beside those of the blocks there are six, three before them and three behind.
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
    first, down, down_again, *blocks, up, up_again = (ready[layer.weight] for layer in layers)
    # 7 columns, stride 1, 3 reflected pixels on each side; in the end 7 columns, no zeros beside them, tanh.
    x, _ = norm(F.conv2d(columns_as_channels(pictures, first.dtype, 7, 1, 3, True), first))
    x, _ = norm(F.conv2d(x, down, stride=2, padding=1))
    x, skip = norm(F.conv2d(x, down_again, stride=2, padding=1), pad=1 if blocks else 0)
    while blocks:
        one, other, *blocks = blocks
        x, _ = norm(F.conv2d(x, one), pad=1)
        x, skip = norm(F.conv2d(x, other), skip, pad=1 if blocks else 0)
    x, _ = norm(F.conv_transpose2d(x, up, stride=2, padding=1, output_padding=1))
    x, _ = norm(F.conv_transpose2d(x, up_again, stride=2, padding=1, output_padding=1), pad=3)
    return channels_as_columns(F.conv2d(x, ready[last.weight]), last.bias, 7, 0, True)


def discriminator(network: nn.Module, ready: dict[nn.Parameter, Tensor], pictures: Tensor) -> Tensor:
    """The verdicts on pictures (N, C, H, W), as `PatchDiscriminator.forward` computes them."""
    first, *layers, last = convolutions(network)
    weight = ready[first.weight]
    # 4 columns, stride 2, a zero on each side; in the end 4 columns, a zero on each side, no tanh.
    x = F.conv2d(columns_as_channels(pictures, weight.dtype, 4, 2, 1, False), weight, None, (2, 1), (1, 0))
    x = F.leaky_relu(x + first.bias.to(x.dtype)[:, None, None], 0.2)  # there is no norm, and so no kernel of ours
    for layer in layers:
        x, _ = norm(F.conv2d(x, ready[layer.weight], stride=layer.stride, padding=1), slope=0.2)
    return channels_as_columns(F.conv2d(x, ready[last.weight], padding=(1, 0)), last.bias, 4, 1, False)


# ---- their weights


def prepared(networks: Sequence[nn.Module], dtype: torch.dtype | None) -> dict[nn.Parameter, Tensor]:
    """The weights of all convolutions of networks of one kind, as the functions above take them.

    They are of this type, or of their own (None). Of a network's first convolution (O, C, 7, 7) becomes
    (O, 7 C, 7, 1), of its last one (7 O, C, 7, 1): the channels of a column lie side by side.
    """
    rows = [convolutions(network) for network in networks]
    unnormed = 1 if isinstance(networks[0], PatchDiscriminator) else 0  # layers at the beginning. The last one is, too
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
    return F.pad(weight, more).clone(memory_format=torch.channels_last)  # a view of width 1 may have other strides


class Cast(torch.autograd.Function):
    """Copies of weights in another type, made together. The biases in `idle` get zeros for gradients: Adam wants some.

    They are given twice, as autograd does not look into lists.
    """

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
