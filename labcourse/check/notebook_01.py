"""Checks of notebook 01: the residual block, the cycle loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labcourse import observe
from labcourse.check.answers import CHANGED, ask, drawn, exercise, expect, require
from labkit.models.losses import cycle_loss as right_cycle_loss
from labkit.networks.resnet import ResidualBlock as RightBlock


@exercise(RightBlock)
def residual_block(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels)`` with `labkit.networks.resnet.ResidualBlock`, with equal weights."""
    channels = drawn(8, lambda random: random.randrange(3, 12))
    height, width = drawn((12, 10), lambda random: (random.randrange(6, 16), random.randrange(6, 16)))
    right = RightBlock(channels)
    seen = ask(answer, channels, through=observe.layers)
    x, weights = torch.randn(2, channels, height, width), seen["weights"]
    biases = any(weight.dim() == 1 for weight in weights.values())  # instance norm takes them out again
    if not biases:
        for convolution in (right.conv_block[1], right.conv_block[5]):
            convolution.register_parameter("bias", None)
    shapes, right_shapes = ([tuple(one.shape) for one in each] for each in (weights.values(), right.parameters()))
    for mistake, message in (
        (any(layer["kind"] == "BatchNorm2d" for layer in seen["layers"]), "nn.BatchNorm2d has weights."),
        (not shapes, "PyTorch finds layers in attributes, nn.Sequential and nn.ModuleList, not in a list."),
        (
            shapes == right_shapes[: len(right_shapes) // 2],
            "one convolution used twice has one set of weights: make two layers.",
        ),
        (any(shape[0] != channels for shape in shapes), f"use the argument `channels`, which is {channels} here."),
        (shapes != right_shapes, "make two 3x3 convolutions, channels in, channels out."),
    ):
        require(not mistake, f"the block's weights have shapes {shapes}, they should have {right_shapes}: {message}")

    pad, norm, relu, second_pad, second_norm = 0, 2, 3, 4, 6  # places in right.conv_block

    def residual(other: nn.Module, *places: int) -> Tensor:
        layers = enumerate(right.conv_block)
        return nn.Sequential(*(other if place in places else layer for place, layer in layers))(x)

    same = {name: value.detach() for name, value in zip(weights, right.parameters(), strict=True)}
    padded = "Is each of the two convolutions padded by 1, so that sizes are kept?"
    got, kept = ask(answer, (channels,), same, x, through=observe.network_output, if_it_fails=padded)
    require(kept, CHANGED)
    with torch.no_grad():
        change, none, zeros = right.conv_block(x), nn.Identity(), nn.ZeroPad2d(1)
        expect(
            got,
            x + change,
            [
                (change, "you return F(x): add the skip connection, x + F(x)."),
                (2 * change, "you return F(x) + F(x): is x overwritten before the sum? Put F(x) under another name."),
                (torch.relu(x + change), "no ReLU after the sum: it would cut off the negative half of x."),
                (x + torch.relu(change), "no ReLU after the second norm: F(x) must be able to subtract, too."),
                (x + residual(zeros, pad, second_pad), "pad by reflection (nn.ReflectionPad2d), not by zeros."),
                (x + residual(none, relu), "there is no ReLU between the two convolutions."),
                (x + residual(none, norm, second_norm), "nn.InstanceNorm2d is missing after the convolutions."),
                (x + residual(none, second_norm), "nn.InstanceNorm2d is missing after the second convolution."),
            ],
            "the numbers differ. The order is: pad, convolve, norm, ReLU, pad, convolve, norm; then add x.",
        )


@exercise(right_cycle_loss)
def cycle_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Compares ``answer(real, reconstruction, weight)`` with `labkit.models.losses.cycle_loss`."""
    shape = drawn([2, 3, 4, 4], lambda random: random.choices(range(2, 6), k=4))
    weight = drawn(7.0, lambda random: random.uniform(2, 9))
    real, back = torch.rand(shape), torch.rand(shape).requires_grad_()
    difference = (back - real).detach()
    size, signs = difference.abs(), "differences of opposite sign cancel: take absolute values before the mean."
    got = ask(answer, real, back, weight)
    expect(
        got,
        right_cycle_loss(real, back, weight),
        [
            (weight * difference.square().mean(), "that is the squared difference (L2): take the absolute one."),
            (size.mean(), "the weight is not used: multiply the mean by it."),
            (weight * size.sum(), "that is the sum: take the mean, or the loss grows with the picture."),
            (weight * size.sum() / len(real), "divide by all values, not by the number of pictures: .mean() does it."),
            (weight * difference.mean(), signs),
            (weight * difference.mean().abs(), signs),
            (10 * size.mean(), "the weight is fixed at 10: use the argument."),
        ],
        "the number differs: it should be weight * mean of |reconstruction - real|.",
    )
    require(got.requires_grad, "no gradient flows back: leave out .detach(), .item() and torch.no_grad().")
