"""What is seen of an answer that makes a network, or computes losses with some."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from labkit.measure.roofline import flop_counter

Convolution = tuple[tuple[Any, ...], dict[str, Tensor]]  # the arguments of nn.Conv2d, and its weights


def network_seen(
    answer: Callable[..., nn.Module], sizes: tuple[int, ...], values: list[Tensor], x: Tensor
) -> dict[str, Any]:
    """What the network ``answer(*sizes)`` is, and what it does under several conditions.

    Args:
        values: for its weights of these shapes, in the order in which they are used for `x`. What else it has, such as
            biases that a norm removes, is 0.
        x: a batch.

    Returns:
        | key | meaning |
        |---|---|
        | weights | as it has drawn them, in the order of their use, numbers last. Other keys need those of `values` |
        | outputs | for `x`, by condition |
        | gradients | in float64, for `x` and for the weights of `values`. None are looked for if `x` was changed |
    """
    network, before = answer(*sizes), x.clone()
    used: list[nn.Module] = []
    for layer in network.modules():
        layer.register_forward_pre_hook(lambda layer, _: used.append(layer))
    with suppress(Exception), torch.no_grad():  # the calls below fail, too
        network(x.clone())
    layers = sorted(network.modules(), key=[*used, *network.modules()].index)
    weights: list[Tensor] = [weight for layer in layers for weight in layer.parameters(recurse=False)]
    weights.sort(key=lambda weight: weight.numel() == 1)
    seen: dict[str, Any] = {"weights": [weight.detach().clone() for weight in weights]}
    given = [weight for weight in weights if weight.shape in {value.shape for value in values}]
    if [weight.shape for weight in given] != [value.shape for value in values]:
        return seen
    with torch.no_grad():
        torch._foreach_zero_(weights)
        torch._foreach_copy_(given, values)
        seen["outputs"] = {
            "alone": torch.cat([network(one) for one in x.split(1)]),
            "in a batch": network(x),
            "in eval mode": network.eval()(x),
        }
    if torch.equal(x, before):
        given = [x.double().requires_grad_(), *given]
        output = network.train().double()(given[0].clone()).flatten()
        seen["gradients"] = _gradients(output @ torch.linspace(0, 1, len(output), dtype=output.dtype), given)
    return seen


def _gradients(loss: Any, ends: list[Tensor]) -> list[Tensor]:
    """Of a loss for each of these: zeros where none arrives, or if it is no tensor."""
    nothing = torch.stack([0 * end.requires_grad_().sum() for end in ends]).sum()
    return list(torch.autograd.grad(nothing + (loss.sum() if isinstance(loss, Tensor) else 0), ends, retain_graph=True))


def losses_and_gradients(
    answer: Callable[..., Any], names: list[str], networks: list[Convolution], learning: int, *inputs: Any
) -> tuple[Any, dict[str, list[Tensor]]]:
    """What ``answer(*networks, *inputs)`` returns, a loss or some in a tuple or a dict, and the gradients of each.

    Args:
        names: of the losses, unless they come in a dict.
        networks: `described`.
        learning: so many of them get gradients for their weights, the first, and so do inputs that require them.
    """
    made = convolutions(networks)
    got = answer(*made, *inputs)
    losses = (
        got if isinstance(got, Mapping) else dict(zip(names, got if isinstance(got, tuple) else [got], strict=False))
    )
    ends = [one.weight for one in made[:learning]] + [one for one in inputs if getattr(one, "requires_grad", False)]
    return got, {name: _gradients(loss, ends) for name, loss in losses.items()}


def described(*sizes: tuple[Any, ...]) -> list[Convolution]:
    """New convolutions in plain values, from the arguments of `nn.Conv2d`."""
    return [(one, dict(nn.Conv2d(*one).state_dict())) for one in sizes]


def convolutions(networks: list[Convolution]) -> list[nn.Conv2d]:
    """Those that are `described`."""
    made = [nn.Conv2d(*sizes) for sizes, _ in networks]
    for one, (_, weights) in zip(made, networks, strict=True):
        one.load_state_dict(weights)
    return made


def learned(
    answer: Callable[..., None], networks: list[Convolution], batches: list[tuple[Tensor, Tensor]], weight: float
) -> tuple[list[list[Tensor]], list[str]]:
    """All weights of encoder, decoder, translator and discriminator after each call, and whose optimisers took steps.

    The answer is called for each of the `batches`, with the four networks, the players' optimisers (gradient descent
    with a rate of 0.1), pictures of A and of B, and the weight of the deviation.
    """
    made, after, steps = convolutions(networks), [], []
    players = {"autoencoder": made[:2], "translator": made[2:3], "discriminator": made[3:]}
    optimizers = {name: torch.optim.SGD(nn.ModuleList(own).parameters(), lr=0.1) for name, own in players.items()}
    for name, optimizer in optimizers.items():
        optimizer.register_step_post_hook(lambda *_, name=name: steps.append(name))
    for batch in batches:
        answer(*made, optimizers, *batch, weight)
        after.append([nn.utils.parameters_to_vector(one.parameters()).detach() for one in made])
    return after, steps


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
