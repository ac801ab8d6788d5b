"""nhwc: the networks run with the channels last, and what lies between two convolutions is two kernels.

The kernels and their gradients are in two files beside this one: `nhwc_norm`, between two convolutions, and
`nhwc_ends`, for the first and the last convolution of a network.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.networks.patchgan import PatchDiscriminator
from labkit.networks.resnet import ResnetGenerator
from labkit.variants import Substitutes, is_hooked
from labkit.variants.compile import why_no_triton
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
    - All weights are cast together, where autocast casts each by itself, and the gradients of a third of a network.
      So "data_parallel" exchanges more than half of the numbers before the last tenth of the backward pass.

    Improves: memory traffic, launches, conversions of layouts. At small batches it needs "graph" to help: a launch from
    Python costs the host more than one of PyTorch's. It does nothing on a processor. (For tests TRITON_INTERPRET=1 has
    Triton's interpreter run the kernels there, slowly.) In 16 bits the results of a kernel are rounded, but nothing
    within; the gradients of a network that runs several times in a step add up in 16 bits. Second derivatives are
    refused, and so are networks with layers that somebody has changed. One that is hooked later is left to PyTorch.
    """

    name = "nhwc"
    changes = "channels last throughout; norm, activation, skip and padding are two kernels, written in Triton"
    improves = "memory traffic, launches"
    needs = "ResNet generators, PatchGANs, instance norm; an NVIDIA GPU and Triton; on processors it does nothing"
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
            strange = strange_layer(network)
            if strange is not None:
                known = "ResNet generators with transposed convolutions and PatchGANs with instance norm"
                where = f": see {name}.{strange}, its class and its hooks" if strange else ""
                return f"it knows {known} only, and {name} is neither{where}"
        on_gpu = next(model.parameters()).is_cuda
        if on_gpu and torch.version.hip:
            return "its kernels are for GPUs by NVIDIA, and this one is AMD's"
        return (why_no_triton() if on_gpu else None) or super().why_unsuited(model)

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        acts = not next(model.parameters()).is_cpu or os.environ.get("TRITON_INTERPRET") == "1"
        return None if acts else "Triton's kernels need a GPU"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.ready: dict[nn.Parameter, Tensor] = {}  # each weight as the convolutions take it, while a player learns
        if NHWC.why_inactive(self.model) is None:
            self.model.to(memory_format=torch.channels_last)  # as gradients come, so that one kernel casts them all
            for network in self.model.children():
                self.forwards[network] = functools.partial(self.translate_or_judge, network)
        return super().build(betas)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        # The discriminators learn from pictures that the generators have made before.
        networks = [one for one in self.forwards if player == "generators" or isinstance(one, PatchDiscriminator)]
        self.ready |= prepared(networks, self.computes_in) if networks else {}
        self.learning = set(self.players[player])
        try:
            return super().learn(player, batch)
        finally:
            # Not before: the backward pass would free them one by one, and their memory would be handed out again while
            # the other stream of "streams" still reads it.
            self.ready.clear()

    def translate_or_judge(self, network: nn.Module, pictures: Tensor) -> Tensor:
        """The result of a network's forward pass."""
        if is_hooked(layer for layer in network.modules() if layer is not network):  # since the step was made
            return type(network).forward(network, pictures)
        run = generator if isinstance(network, ResnetGenerator) else discriminator
        return run(network, self.weights(network), pictures)

    def weights(self, network: nn.Module) -> Iterator[Tensor]:
        """The prepared weights of a network's convolutions, in their order.

        Autograd takes the node that is made last first. So a third of them gets its node, which casts their gradients,
        where it is first used, and not where all are cast: nothing of it could be exchanged before the end.
        """
        layers = convolutions(network)
        normed = layers[1 if isinstance(network, PatchDiscriminator) else 0 : -1]
        third = math.ceil(len(layers) / 3)
        for k, layer in enumerate(layers):
            if k % third == 0 and torch.is_grad_enabled():
                self.link(layers[k : k + third], normed)
            yield self.ready[layer.weight]

    def link(self, part: list[Any], normed: list[Any]) -> None:
        """Gives the weights of these layers, as prepared, a node; another one those that this player does not learn."""
        for learn in (True, False):
            mine = [one.weight for one in part if one.weight.requires_grad and (one.weight in self.learning) == learn]
            copies = {weight: self.ready[weight] for weight in mine if not self.ready[weight].requires_grad}
            if copies:
                idle = [one.bias for one in part if one in normed and one.bias.requires_grad]
                linked = Cast.apply([*copies.values()], idle, *copies, *idle)
                self.ready |= zip(copies, linked, strict=True)


def strange_layer(network: nn.Module) -> str | None:
    """The name of the first layer that sets it apart from the networks known here, "" for the network, or None.

    Known are ResNet generators of plain residual blocks and PatchGANs, with instance norm. It is compared with a new
    one of its size, layer by layer, so that a subclass, a parametrization or a layer put in shows.
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
            return ""
    mine, its = (
        [(name, type(one), one.extra_repr(), [*one._parameters], [*one._buffers]) for name, one in both.named_modules()]
        for both in (network, twin)
    )
    hooked = [name for name, layer in network.named_modules() if name and is_hooked([layer])]
    differ = [one[0] for one, other in itertools.zip_longest(mine, its, fillvalue=("",)) if one != other]
    return next(iter([*hooked, *differ]), None)


def convolutions(network: nn.Module) -> list[Any]:
    """All convolutions of a network, in their order."""
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]


# ---- the networks


def generator(network: nn.Module, weights: Iterator[Tensor], pictures: Tensor) -> Tensor:
    """The translations of pictures (N, C, H, W), as `ResnetGenerator.forward` computes them."""
    blocks, last = (len(convolutions(network)) - 6) // 2, convolutions(network)[-1]
    # 7 columns, stride 1, 3 reflected pixels on each side; in the end 7 columns, no zeros beside them, tanh.
    first = next(weights)
    x, _ = norm(F.conv2d(columns_as_channels(pictures, first.dtype, 7, 1, 3, True), first))
    x, _ = norm(F.conv2d(x, next(weights), stride=2, padding=1))
    x, skip = norm(F.conv2d(x, next(weights), stride=2, padding=1), pad=1 if blocks else 0)
    for rest in reversed(range(blocks)):
        x, _ = norm(F.conv2d(x, next(weights)), pad=1)
        x, skip = norm(F.conv2d(x, next(weights)), skip, pad=1 if rest else 0)
    x, _ = norm(F.conv_transpose2d(x, next(weights), stride=2, padding=1, output_padding=1))
    x, _ = norm(F.conv_transpose2d(x, next(weights), stride=2, padding=1, output_padding=1), pad=3)
    return channels_as_columns(F.conv2d(x, next(weights)), last.bias, 7, 0, True)


def discriminator(network: nn.Module, weights: Iterator[Tensor], pictures: Tensor) -> Tensor:
    """The verdicts on pictures (N, C, H, W), as `PatchDiscriminator.forward` computes them."""
    first, *layers, last = convolutions(network)
    weight = next(weights)
    # 4 columns, stride 2, a zero on each side; in the end 4 columns, a zero on each side, no tanh.
    x = F.conv2d(columns_as_channels(pictures, weight.dtype, 4, 2, 1, False), weight, None, (2, 1), (1, 0))
    x = F.leaky_relu(x + first.bias.to(x.dtype)[:, None, None], 0.2)  # there is no norm, and so no kernel of ours
    for layer in layers:
        x, _ = norm(F.conv2d(x, next(weights), stride=layer.stride, padding=1), slope=0.2)
    return channels_as_columns(F.conv2d(x, next(weights), padding=(1, 0)), last.bias, 4, 1, False)


# ---- their weights


@torch.no_grad()
def prepared(networks: Sequence[nn.Module], dtype: torch.dtype | None) -> dict[nn.Parameter, Tensor]:
    """Copies of the weights of all convolutions of networks, made together, as the functions above take them.

    They are of this type, or of their own (None). Of a network's first convolution (O, C, 7, 7) becomes
    (O, 7 C, 7, 1), of its last one (7 O, C, 7, 1): the channels of a column lie side by side.
    """
    rows = [[layer.weight for layer in convolutions(network)] for network in networks]
    ready = {weight: torch.empty_like(weight, dtype=dtype) for row in rows for weight in row}
    torch._foreach_copy_(list(ready.values()), list(ready))
    for row in rows:
        for weight, dim in ((row[0], 1), (row[-1], 0)):
            columns = ready[weight].movedim(3, dim).flatten(dim, dim + 1).unsqueeze(3)
            more = [0, 0] * (3 - dim) + [0, -columns.shape[dim] % ALIGNED]
            # a view of width 1 may have other strides
            ready[weight] = F.pad(columns, more).clone(memory_format=torch.channels_last)
    return ready


class Cast(torch.autograd.Function):
    """Prepared copies of weights, whose gradients it casts together. The biases in `idle` get zeros: Adam wants some.

    Weights and biases are given as tensors, too, as autograd does not look into lists.
    """

    @staticmethod
    def forward(ctx: Any, copies: list[Tensor], idle: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.idle, ctx.weights = idle, tensors[: len(copies)]
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
    if gradient.shape != weight.shape:  # as `prepared` has made it
        dim = 0 if gradient.shape[1] == weight.shape[1] else 1
        sizes = weight.shape[3], weight.shape[dim]
        gradient = gradient.squeeze(3).narrow(dim, 0, math.prod(sizes)).unflatten(dim, sizes).movedim(dim, 3)
    same = gradient.stride() == weight.stride()
    return gradient if same else torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)
