"""What is seen of an answer that makes a network, or computes losses with some."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.measure.roofline import flop_counter

CONVOLUTION = ("kernel_size", "stride", "padding", "out_channels", "in_channels")
Convolution = tuple[Tensor, Tensor, dict[str, Any]]  # weight, bias and settings


def layers(answer: Callable[..., nn.Module], sizes: tuple[int, ...], x: Tensor) -> dict[str, Any]:
    """The layers of ``answer(*sizes)``, and its weights by name, in the order in which they are used for `x`.

    Those that are not used for it come last, in the order of their definition. A layer has its "kind", the class of
    PyTorch that it is or extends, and its name as a prefix of its weights' names. A convolution has its sizes, too.
    """
    network = answer(*sizes)
    used: list[nn.Module] = []
    for layer in network.modules():
        layer.register_forward_pre_hook(lambda layer, _: used.append(layer))
    with suppress(Exception), torch.no_grad():  # `network_output` tells what is wrong
        network(x.clone())
    modules = sorted(network.named_modules(), key=lambda named: [*used, named[1]].index(named[1]))
    found: list[dict[str, Any]] = []
    weights: dict[str, Tensor] = {}
    for name, layer in modules:
        classes = [one.__name__ for one in type(layer).__mro__ if one.__module__.startswith("torch.nn.")]
        sizes_of = {one: getattr(layer, one) for one in CONVOLUTION if isinstance(layer, nn.Conv2d)}
        prefix = f"{name}." if name else ""
        found.append({"kind": classes[0], "prefix": prefix, **sizes_of})
        weights |= {f"{prefix}{own}": value.detach() for own, value in layer.named_parameters(recurse=False)}
    return {"layers": found, "weights": weights}


def network_output(
    answer: Callable[..., nn.Module], sizes: tuple[int, ...], weights: dict[str, Tensor], x: Tensor
) -> tuple[Tensor, bool]:
    """The output for `x` of ``answer(*sizes)`` with these weights, and whether `x` is as it was."""
    network, before = answer(*sizes), x.clone()
    with torch.no_grad():
        for name, value in network.named_parameters():
            if name in weights:
                value.copy_(weights[name])
        return network(x), torch.equal(x, before)


def translation(
    answer: Callable[..., tuple[Tensor, Tensor]],
    networks: list[Convolution],
    real_a: Tensor,
    weight: float,
) -> tuple[Any, list[tuple[bool, bool]]]:
    """The losses of ``answer(encoder, translator, discriminator, real_a, weight)``, and how far gradients flow.

    Args:
        networks: the three, `described`.

    Returns:
        What the answer returns, and for each loss whether its gradient reaches the encoder, and the translator.
    """
    made = _convolutions(networks)
    got = answer(*made, real_a, weight)
    reached = []
    for loss in got if isinstance(got, tuple) else ():
        ends = [network.weight for network in made[:2]]
        flows = isinstance(loss, Tensor) and loss.requires_grad
        gradients = torch.autograd.grad(loss, ends, retain_graph=True, allow_unused=True) if flows else (None, None)
        reached.append((gradients[0] is not None, gradients[1] is not None))
    return got, reached


def losses_of_generators(
    answer: Callable[..., dict[str, Tensor]], networks: list[Convolution], real_a: Tensor, real_b: Tensor, weight: float
) -> tuple[Any, bool]:
    """What ``answer(G_A, G_B, D_A, D_B, real_a, real_b, weight)`` returns, and whether each loss reaches its generator.

    Those whose names end with A should reach G_A, the others G_B.
    """
    made = _convolutions(networks)
    got = answer(*made, real_a, real_b, weight)

    def reaches(name: str, loss: Any) -> bool:
        flows = isinstance(loss, Tensor) and loss.requires_grad
        ends = made[not name.endswith("A")].weight
        return flows and torch.autograd.grad(loss, ends, retain_graph=True, allow_unused=True)[0] is not None

    return got, isinstance(got, dict) and all(reaches(*one) for one in got.items())


def described(*convolutions: nn.Conv2d) -> list[Convolution]:
    """Convolutions in plain values."""
    return [
        (one.weight.detach().clone(), cast(Tensor, one.bias).detach(), {"stride": one.stride, "padding": one.padding})
        for one in convolutions
    ]


def _convolutions(networks: list[Convolution]) -> list[nn.Conv2d]:
    made = []
    for value, bias, settings in networks:
        out, into, height, width = value.shape
        made.append(nn.Conv2d(into, out, (height, width), **settings))
        made[-1].load_state_dict({"weight": value, "bias": bias})
    return made


def optimizers_of(*networks: nn.Module) -> dict[str, torch.optim.Optimizer]:
    """Gradient descent with a rate of 0.1 for the players of encoder, decoder, translator and discriminator."""
    players = {"autoencoder": networks[:2], "translator": networks[2:3], "discriminator": networks[3:]}
    return {
        player: torch.optim.SGD([weight for one in own for weight in one.parameters()], lr=0.1)
        for player, own in players.items()
    }


def learned(
    answer: Callable[..., None],
    networks: list[Convolution],
    real_a: Tensor,
    real_b: Tensor,
    weight: float,
) -> list[Tensor]:
    """The weights of encoder, decoder, translator and discriminator after one call of the answer.

    It is called with these four, their `optimizers_of`, pictures of A and of B, and the weight of the deviation.
    """
    made = _convolutions(networks)
    answer(*made, optimizers_of(*made), real_a, real_b, weight)
    return [one.weight.detach() for one in made]


def block_flops(answer: Callable[[int], nn.Module], channels: int) -> int:
    """The FLOPs of a block for 32 x 32 pixels."""
    with flop_counter() as counter, torch.no_grad():
        answer(channels).to("meta")(torch.empty(1, channels, 32, 32, device="meta"))
    return int(counter.get_total_flops())


def light_design(
    answer: Callable[[int], nn.Module], x: Tensor, patch: int, draws: int, outputs: list[int]
) -> dict[str, Any]:
    """What the output of a block depends on, whatever its layers are called.

    `x` consists of patches of equal pixels. Around the middle of one an activation has the same slope everywhere, and
    a norm, which lets each pixel depend on all others, adds the same to each derivative: their differences are local.

    Args:
        x: pictures.
        patch: pixels from one patch to the next, down and across.
        draws: how often the weights that are learnt are drawn.
        outputs: channels.

    Returns:
        | key | meaning |
        |---|---|
        | shape | of the output for `x` |
        | adds_x | with all these weights 0 the output is the input, also for a part of a picture |
        | depends | (draw, output, picture, patch, channel, 25): how F in a middle of a patch changes with the 5 x 5
          pixels around it, less how it changes with a pixel three farther down and across |
    """
    block = answer(x.shape[1]).double()
    weights = [weight for weight in block.parameters() if weight.requires_grad]
    with torch.no_grad():
        seen: dict[str, Any] = {"shape": tuple(block(x).shape)}
    found = []
    for _ in range(draws if x.shape == seen["shape"] else 0):
        with torch.no_grad():
            for weight in weights:
                size = (1 + torch.rand(weight.shape)) / math.sqrt(math.prod(weight.shape[1:]))
                weight.copy_(size * torch.randn(weight.shape).sign())
        given = x.clone().requires_grad_()
        middles = (block(given.clone()) - given)[:, :, patch // 2 :: patch, patch // 2 :: patch].sum((0, 2, 3))
        for output in outputs:
            slopes = torch.autograd.grad(middles[output], given, retain_graph=True)[0]
            around = slopes.unfold(2, patch, patch).unfold(3, patch, patch).flatten(2, 3).transpose(1, 2)
            around = around[..., patch // 2 - 2 :, patch // 2 - 2 :]
            found.append((around[..., :5, :5] - around[..., 5:6, 5:6]).flatten(-2))
    with torch.no_grad():
        for weight in weights:
            weight.zero_()
        adds_x = all(torch.allclose(block(one), one) for one in (x, x[:1, :, :9, :12]))
    return seen | {"adds_x": adds_x, "depends": torch.stack(found).unflatten(0, (draws, len(outputs)))}
