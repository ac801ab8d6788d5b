"""Compares networks and losses with the right ones: what they give, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from labcourse import observe
from labcourse.check.answers import ask, expect, require


def compare_network(
    answer: type[nn.Module], sizes: tuple[int, ...], right: nn.Module, x: Tensor, mistakes: list[Any], hints: list[str]
) -> list[Tensor]:
    """Compares the network ``answer(*sizes)`` with `right`, whose weights it gets, and returns its own initial weights.

    Biases may be missing, except where there is one channel: in these networks a norm removes the others.

    Args:
        x: a batch.
        mistakes: the output of each likely mistake, and its message.
        hints: for weights of other shapes, for an output of another shape or none, and the message for other numbers.
    """

    def kept(weights: Iterable[Tensor]) -> list[Tensor]:
        return [one.detach().clone() for one in weights if one.dim() > 1 or one.numel() == 1]

    values = kept(right.parameters())
    seen = ask(answer, sizes, values, x, through=observe.network_seen, if_it_fails=hints[1])
    its = observe.network_seen(lambda *_: right, sizes, values, x)
    mine, expected = ([tuple(one.shape) for one in each] for each in (kept(seen["weights"]), values))
    require(mine == expected, f"the network's weights have shapes {mine}, they should have {expected}: {hints[0]}")
    for condition, got in seen["outputs"].items():
        output = its["outputs"][condition]
        require(got.shape == output.shape, f"the output has shape {(*got.shape,)}, not {(*output.shape,)}. {hints[1]}")
        told = f"{condition} the output differs from that of single pictures in training: is it batch norm or dropout?"
        expect(got, output, mistakes, hints[2] if condition == "alone" else told)
    ends = ["the input", *(f"the weights of shape {shape}" for shape in expected)]
    compare_gradients({"the output": seen["gradients"]}, {"the output": its["gradients"]}, ends)
    return seen["weights"]


def compare_gradients(got: dict[str, list[Tensor]], right: dict[str, list[Tensor]], ends: list[str]) -> None:
    """Compares the gradients of each loss for each of the `ends` with the right ones: 0 where there should be none."""
    for loss, gradients in right.items():
        for end, mine, its in zip(ends, got[loss], gradients, strict=True):
            stopped = (
                f"no gradient of {loss} reaches {end}: is .detach(), .item() or no_grad on its way, or is it frozen?"
            )
            another = f"the gradient of {loss} for {end} is another: is a part of its way detached, or is it nan?"
            reaches = f"gradients of {loss} reach {end}: detach what comes from there."
            expect(mine, its, [(0 * its, stopped)], another if its.any() else reaches)
