"""Checks of notebook 07: the deviation loss, a discriminator on codes, and modules that run at the same time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.course.check.answers import a_seed, drawn, exercise, expect, failing, require
from labkit.measure.roofline import amdahl
from labkit.models.losses import deviation_loss as right_deviation_loss
from labkit.networks.codes import CodeDiscriminator


@exercise(right_deviation_loss)
def deviation_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Compares ``answer(code, translated, weight)`` with `labkit.models.losses.deviation_loss`."""
    torch.manual_seed(drawn(0, a_seed))
    shape = drawn([2, 8, 4, 4], lambda random: random.choices(range(2, 8), k=4))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    code, translated = torch.randn(shape), torch.randn(shape).requires_grad_()
    change = (translated - code).detach()
    got = answer(code, translated, weight)
    expect(
        got,
        right_deviation_loss(code, translated, weight),
        [
            (change.abs().mean(), "the weight is not used: multiply the mean by it."),
            (
                weight * change.square().mean(),
                "that is the squared change (L2), which hardly minds small ones: take L1.",
            ),
            (
                weight * change.square().mean().sqrt(),
                "that is the root mean square: take absolute values and their mean.",
            ),
            (weight * change.abs().sum(), "that is the sum: take the mean, or the loss grows with the code."),
            (
                weight * change.abs().sum() / len(code),
                "divide by all values of the codes, not by the number of pictures.",
            ),
            (weight * change.mean(), "changes of opposite sign cancel: take absolute values before the mean."),
            (
                weight * translated.detach().abs().mean(),
                "that is the size of the code, not its change: subtract `code`.",
            ),
        ],
        "the number differs: it should be weight * mean of |translated - code|.",
    )
    require(got.requires_grad, "no gradient reaches the translator: leave out .detach(), .item() and torch.no_grad().")


@exercise(CodeDiscriminator)
def code_discriminator(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels, width)`` with `labkit.networks.codes.CodeDiscriminator`, with equal weights."""
    torch.manual_seed(drawn(0, a_seed))
    channels, width = drawn((12, 2), lambda random: (random.randrange(8, 20), random.randrange(2, 5)))
    right, judge = CodeDiscriminator(channels, width), answer(channels, width)
    require(isinstance(judge, nn.Module), "the class should be an nn.Module: class CodeDiscriminator(nn.Module).")
    mine, its = ([layer for layer in one.modules() if isinstance(layer, nn.Conv2d)] for one in (judge, right))
    left = "of PatchGAN's five, three are left, since a code has been halved twice already."
    require(len(mine) == len(its), f"there are {len(mine)} convolutions (nn.Conv2d): {left}")
    for name, hint in (
        ("kernel_size", "PatchGAN's are 4x4."),
        ("stride", "only the first of the three halves the code once more."),
        ("padding", "PatchGAN pads by 1 everywhere, so that a verdict is lost at each layer that does not halve."),
        ("out_channels", "4 * width, then twice as many, then one verdict."),
        ("in_channels", "the first takes a code, the others the output of the one before."),
    ):
        got, expected = ([getattr(layer, name) for layer in layers] for layers in (mine, its))
        require(got == expected, f"the convolutions' {name} is {got}: {hint}")
    require(mine[-1].bias is not None, "the last convolution has no bias, and no norm after it that would remove one.")
    spread = torch.cat([layer.weight.flatten() for layer in mine]).std().item()
    zero = not any(layer.bias.any() for layer in mine if layer.bias is not None)
    initial = f"the initial weights scatter by {spread:.3f}, or biases are not 0: call initialise(self) last."
    require(0.015 < spread < 0.025 and zero, initial)
    with torch.no_grad():
        for own, other in zip(mine, its, strict=True):
            own.weight.copy_(other.weight)
            if own.bias is not None and other.bias is not None:
                own.bias.copy_(nn.init.normal_(other.bias))  # a norm would remove it, so it may be left out
        _compare_verdicts(judge, right, its, channels)


def _compare_verdicts(judge: nn.Module, right: nn.Module, convolutions: list[nn.Conv2d], channels: int) -> None:
    """Compares verdicts on the same codes, and wrong verdicts with those of likely mistakes."""
    batch, height, width = drawn(
        [2, 16, 12], lambda random: [random.randrange(1, 4), *random.choices((12, 14, 18), k=2)]
    )
    codes = torch.randn(batch, channels, height, width)

    def mistaken(*norms: bool, inner: Callable = lambda y: F.leaky_relu(y, 0.2)) -> Tensor:
        y = codes
        for convolution, normed in zip(convolutions, norms or (True, True, False), strict=True):
            y = convolution(y)
            y = F.instance_norm(y) if normed else y
            y = y if convolution is convolutions[-1] else inner(y)
        return y

    fails = f"it fails on a code of shape {tuple(codes.shape)}. Is forward right?"
    with failing((NotImplementedError, RuntimeError, TypeError), fails):
        verdicts = judge(codes.clone())
    expect(
        verdicts,
        right(codes.clone()),
        [
            (mistaken(False, True, False), "the first layer is normalised, too: its input is no picture any more."),
            (mistaken(False, False, False), "nn.InstanceNorm2d is missing after the first two convolutions."),
            (mistaken(True, False, False), "nn.InstanceNorm2d is missing after the second convolution."),
            (mistaken(True, True, True), "the verdicts are normalised: then they say the same of every code."),
            (torch.sigmoid(mistaken()), "a sigmoid bounds the verdicts: the least-squares loss needs them unbounded."),
            (F.leaky_relu(mistaken(), 0.2), "no activation after the last convolution: verdicts have both signs."),
            (mistaken(inner=F.relu), "the slope below 0 is 0: nn.LeakyReLU(0.2) lets some gradient through there."),
            (mistaken(inner=F.leaky_relu), "the slope below 0 is PyTorch's default: PatchGAN has nn.LeakyReLU(0.2)."),
            (mistaken(inner=lambda y: y), "there is no activation between the convolutions: nn.LeakyReLU(0.2)."),
        ],
        "the verdicts differ. The order is: convolve, norm, LeakyReLU(0.2), twice; then convolve once more.",
    )


def _any_work(random: Random) -> list[dict[str, float]]:
    """Work of one to six modules, to `times_at_once`."""
    return [{f"module {i}": random.uniform(1, 99) for i in range(n)} for n in random.sample(range(1, 7), 4)]


@exercise()
def times_at_once(answer: Callable[[Mapping[str, float]], float]) -> None:
    """Compares ``answer(work)`` with Amdahl's law, if all modules but the one with most work take no time any more."""
    usual = [{"x": 50.0, "y": 50.0, "z": 50.0}, {"x": 0.2, "y": 0.7, "z": 0.1}, {"x": 30.0, "y": 10.0}, {"x": 8.0}]
    for work in drawn(usual, _any_work):
        largest, whole = max(work.values()), sum(work.values())
        right = amdahl(1 - largest / whole, math.inf)
        others = whole / (whole - largest) if len(work) > 1 else math.nan
        expect(
            answer(dict(work)),
            right,
            [
                (len(work), "As many times as there are modules only if all have the same work: which is the last?"),
                (largest / whole, "That is the time that is left, as a share: how many times faster is one over it."),
                (largest, "That is how long the step takes then: how many times faster is that than in turns?"),
                (1 / largest, "These are amounts of work, which need not add up to 1."),
                (whole / min(work.values()), "The step is over when the *last* module is done, not the first."),
                (len(work) * right, "The longest module still takes its whole time: nothing shares it."),
                (others, "The modules run side by side: the longest one is left, not the others."),
            ],
            "All begin at the same time: how long does it take until the last one is done?",
            f"work {work}",
        )
