"""What is seen of an answer that makes a network, or computes losses with some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from labkit.measure.roofline import flop_counter

Convolution = tuple[tuple[Any, ...], dict[str, Tensor]]  # the arguments of nn.Conv2d, and its weights
PICTURES = 32  # in one of them at least, each ReLU lets the middle pixel through


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
        | weights | as it has drawn them, in the order of their use for `x`. The other keys need those of `values` |
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


def light_design(answer: Callable[[int], nn.Module], channels: int) -> dict[str, Any]:
    """What the output of a block depends on.

    Returns:
        | key | meaning |
        |---|---|
        | shape | of the output for (32, channels, 9, 11) |
        | adds_x | with all weights 0 the output is the input |
        | sees | pixels on which the middle one depends, in whatever channel: bool (9, 11) |
        | blind | input channels on which an output channel does not depend, on average |
        | linear | it is one linear map |
        | alike | a mirrored input gives the mirrored output, in both directions |
    """
    block = _without_norms(answer(channels).double())  # they let each pixel depend on all others
    x, y = 3 * torch.randn(2, PICTURES, channels, 9, 11, dtype=torch.float64)
    got = block(x.clone())
    seen: dict[str, Any] = {"shape": tuple(got.shape)}
    if got.shape != x.shape:
        return seen
    sees = torch.stack([_dependence(block, x, channel) for channel in range(channels)])  # output, input, height, width
    seen |= {
        "linear": torch.allclose(block(x + y) + block(0 * x), got + block(y.clone())),
        "sees": sees.any(1).any(0),
        "blind": len(torch.nonzero(~sees.any(3).any(2))) / channels,
        "alike": all(torch.allclose(block(x.flip(side)), got.flip(side)) for side in (2, 3)),
    }
    with torch.no_grad():
        for weight in block.parameters():
            weight.zero_()
    return seen | {"adds_x": torch.allclose(block(x.clone()), x)}


def _without_norms(block: nn.Module) -> nn.Module:
    for parent in block.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.InstanceNorm2d | nn.BatchNorm2d | nn.GroupNorm):
                setattr(parent, name, nn.Identity())
    return block


def _dependence(block: nn.Module, x: Tensor, channel: int) -> Tensor:
    """Where an output channel's middle pixel depends on the input: bool (channels, height, width)."""
    given = x.clone().requires_grad_()
    middle = block(given.clone())[:, channel, 4, 5] - given[:, channel, 4, 5]
    return torch.autograd.grad(middle.sum(), given)[0].abs().sum(0) > 1e-12
