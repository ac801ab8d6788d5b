"""Compares networks and losses with the right ones: what they give, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from labcourse.check.answers import expect, guarded, require
from labkit.models.cyclegan import CycleGAN


def small_model(seed: int, **settings: Any) -> CycleGAN:
    """A CycleGAN of small networks, whose weights depend on the seed alone."""
    small: dict[str, Any] = {"generator": "resnet_3blocks", "discriminator": "n_layers", "n_layers": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CycleGAN(**small | {"ngf": 4, "ndf": 4} | settings)


def compare_network(
    answer: type[nn.Module], sizes: tuple[int, ...], right: nn.Module, x: Tensor, mistakes: list[Any], hints: list[str]
) -> list[Tensor]:
    """Compares the network ``answer(*sizes)`` with `right`, whose weights it gets, and returns its own initial weights.

    Biases may be missing, except where there is one channel: in these networks a norm removes the others, which are 0.

    Args:
        x: a batch.
        mistakes: the output of each likely mistake, and its message.
        hints: for weights of other shapes, for an output of another shape or none, and the message for other numbers.
    """
    values = [weight.detach() for weight in _counted(right.parameters())]
    shapes = [tuple(one.shape) for one in values]
    with guarded(answer, x, if_it_fails=hints[1]):
        network = answer(*sizes)
        weights = _in_use(network, x)
        initial, own = [weight.detach().clone() for weight in weights], _counted(weights)
        mine = [tuple(one.shape) for one in own]
        require(mine == shapes, f"the network's weights have shapes {mine}, they should have {shapes}: {hints[0]}")
        with torch.no_grad():
            torch._foreach_zero_(weights)
            torch._foreach_copy_(own, values)
        outputs = _outputs(network, x)
    for (condition, output), got in zip(_outputs(right, x).items(), outputs.values(), strict=True):
        require(got.shape == output.shape, f"the output has shape {(*got.shape,)}, not {(*output.shape,)}. {hints[1]}")
        told = f"{condition} the output differs from that of single pictures in training: is it batch norm or dropout?"
        expect(got, output, mistakes, hints[2] if condition == "alone" else told)
    with guarded(answer, x, if_it_fails=hints[1]):
        slopes = _slopes(network, x, own)
    ends = ["the input", *(f"the weights of shape {shape}" for shape in shapes)]
    compare_gradients("the output", slopes, _slopes(right, x, _counted(right.parameters())), ends)
    return initial


def _counted(weights: Iterable[Tensor]) -> list[Tensor]:
    return [one for one in weights if one.dim() > 1 or one.numel() == 1]


def _in_use(network: nn.Module, x: Tensor) -> list[Tensor]:
    """A network's weights, in the order of their use for `x`, numbers last."""
    used: list[nn.Module] = []
    for layer in network.modules():
        layer.register_forward_pre_hook(lambda layer, _: used.append(layer))
    with suppress(Exception), torch.no_grad():  # later calls fail, too
        network(x.clone())
    layers = sorted(network.modules(), key=[*used, *network.modules()].index)
    weights: list[Tensor] = [weight for layer in layers for weight in layer.parameters(recurse=False)]
    return sorted(weights, key=lambda weight: weight.numel() == 1)


@torch.no_grad()
def _outputs(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    return {
        "alone": torch.cat([network(one) for one in x.split(1)]),
        "in a batch": network(x),
        "in eval mode": network.eval()(x),
    }


def _slopes(network: nn.Module, x: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """The gradients of the output, its places weighted from 0 to 1, for `x` and for weights, in float64."""
    ends = [x.double().requires_grad_(), *weights]
    output = network.train().double()(ends[0].clone()).flatten()
    return gradients(output @ torch.linspace(0, 1, len(output), dtype=output.dtype), ends)


def gradients(loss: Any, ends: list[Tensor]) -> list[Tensor]:
    """Of a loss for each of these: zeros where none arrives, or if it is no tensor."""
    nothing = torch.stack([0 * end.requires_grad_().sum() for end in ends]).sum()
    found = torch.autograd.grad(nothing + (loss.sum() if isinstance(loss, Tensor) else 0), ends, retain_graph=True)
    return [one.clone() for one in found]  # some are expanded


def compare_losses(
    answer: Callable[..., Any], got: Mapping[str, Any], right: Mapping[str, Tensor], ends: Mapping[str, Tensor]
) -> None:
    """Compares the gradients of an answer's losses for the weights or inputs `ends` with those of the right losses."""
    weights = [*ends.values()]
    for name, loss in right.items():
        with guarded(answer):
            mine = gradients(got[name], weights)
        compare_gradients(name, mine, gradients(loss, weights), ends)


def compare_gradients(loss: str, got: list[Tensor], right: list[Tensor], ends: Iterable[str]) -> None:
    """Compares the gradients of a loss for each of the `ends` with the right ones: 0 where there should be none."""
    for end, mine, its in zip(ends, got, right, strict=True):
        stopped = f"no gradient of {loss} reaches {end}: is .detach(), .item() or no_grad on its way, or is it frozen?"
        another = f"the gradient of {loss} for {end} is another: is a part of its way detached, or is it nan?"
        reaches = f"gradients of {loss} reach {end}: detach what comes from there."
        expect(mine, its, [(0 * its, stopped)], another if its.any() else reaches)
