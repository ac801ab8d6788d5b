"""Checks of notebook 07: the deviation loss, a discriminator on codes, and what the longest part leaves to gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.course.checks.answers import WrongAnswer, compare, instead, passed, require
from labkit.measure.roofline import amdahl
from labkit.models.losses import deviation_loss as right_deviation_loss
from labkit.networks.codes import CodeDiscriminator

CHANNELS, WIDTH = 12, 2  # of the codes and of the discriminator in the check


def deviation_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Holds ``answer(code, translated, weight)`` to `labkit.models.losses.deviation_loss`."""
    torch.manual_seed(0)
    code, translated = torch.randn(2, 8, 4, 4), torch.randn(2, 8, 4, 4).requires_grad_()
    change = (translated - code).detach()
    got = answer(code, translated, 3.0)
    compare(
        got,
        right_deviation_loss(code, translated, 3.0),
        [
            (change.abs().mean(), "the weight is not used: multiply the mean by it."),
            (3 * change.square().mean(), "that is the squared change (L2), which hardly minds small ones: take L1."),
            (3 * change.square().mean().sqrt(), "that is the root mean square: take absolute values and their mean."),
            (3 * change.abs().sum(), "that is the sum: take the mean, or the loss grows with the code."),
            (3 * change.abs().sum() / len(code), "divide by all values of the codes, not by the number of pictures."),
            (3 * change.mean(), "changes of opposite sign cancel: take absolute values before the mean."),
            (3 * translated.detach().abs().mean(), "that is the size of the code, not its change: subtract `code`."),
        ],
        "the number differs: it is weight * mean of |translated - code|.",
    )
    require(got.requires_grad, "no gradient reaches the translator: leave out .detach(), .item() and torch.no_grad().")
    passed("deviation_loss")


def code_discriminator(answer: type[nn.Module]) -> None:
    """Holds ``answer(channels, width)`` to `labkit.networks.codes.CodeDiscriminator`, weights being equal."""
    torch.manual_seed(0)
    right, judge = CodeDiscriminator(CHANNELS, WIDTH), answer(CHANNELS, WIDTH)
    require(isinstance(judge, nn.Module), "the class is to be an nn.Module: class CodeDiscriminator(nn.Module).")
    mine, theirs = ([layer for layer in one.modules() if isinstance(layer, nn.Conv2d)] for one in (judge, right))
    require(
        len(mine) == len(theirs),
        f"there are {len(mine)} convolutions (nn.Conv2d): of PatchGAN's five, three are left, since a code has been "
        "halved twice already.",
    )
    for what, hint in (
        ("kernel_size", "PatchGAN's are 4x4."),
        ("stride", "only the first of the three halves the code once more."),
        ("padding", "PatchGAN pads by 1 everywhere, so that a verdict is lost at each layer that does not halve."),
        ("out_channels", "4 * width, then twice as many, then one verdict."),
        ("in_channels", "the first takes a code, the others what the one before them gives."),
    ):
        got, expected = ([getattr(layer, what) for layer in layers] for layers in (mine, theirs))
        require(got == expected, f"the convolutions' {what} is {got}: {hint}")
    require(mine[-1].bias is not None, "the last convolution has no bias, and no norm after it that would remove one.")
    _require_initial(mine)
    with torch.no_grad():
        for own, other in zip(mine, theirs, strict=True):
            nn.init.normal_(other.bias)  # one that a norm follows changes nothing, and may be left out
            own.weight.copy_(other.weight)
            if own.bias is not None:
                own.bias.copy_(other.bias)
        _compare_verdicts(judge, right, theirs)
    passed("code_discriminator")


def _require_initial(convolutions: list[nn.Conv2d]) -> None:
    weights = torch.cat([layer.weight.flatten() for layer in convolutions])
    biases = [layer.bias for layer in convolutions if layer.bias is not None]
    require(
        0.015 < weights.std().item() < 0.025 and not any(bias.any() for bias in biases),
        f"the initial weights scatter by {weights.std().item():.3f}, or biases are not 0: call initialise(self) last.",
    )


def _compare_verdicts(judge: nn.Module, right: nn.Module, convolutions: list[nn.Conv2d]) -> None:
    """Compares verdicts on the same codes, and else with those of likely mistakes."""
    codes = torch.randn(2, CHANNELS, 16, 12)

    def mistaken(
        norms: tuple[bool, bool, bool] = (True, True, False), inner: Callable = lambda y: F.leaky_relu(y, 0.2)
    ) -> Tensor:
        y = codes
        for convolution, normed in zip(convolutions, norms, strict=True):
            y = convolution(y)
            y = F.instance_norm(y) if normed else y
            y = y if convolution is convolutions[-1] else inner(y)
        return y

    try:
        verdicts = judge(codes.clone())
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise WrongAnswer(f"it fails on a code of shape {tuple(codes.shape)}: {error}. Is forward right?") from error
    compare(
        verdicts,
        right(codes.clone()),
        [
            (
                mistaken((False, True, False)),
                "the first layer is normalised, too: what comes in is no picture any more.",
            ),
            (mistaken((False, False, False)), "nn.InstanceNorm2d is missing after the first two convolutions."),
            (mistaken((True, False, False)), "nn.InstanceNorm2d is missing after the second convolution."),
            (mistaken((True, True, True)), "the verdicts are normalised: then they say the same of every code."),
            (
                torch.sigmoid(mistaken()),
                "a sigmoid bounds the verdicts: the least-squares loss takes them as they are.",
            ),
            (F.leaky_relu(mistaken(), 0.2), "no activation after the last convolution: verdicts have both signs."),
            (mistaken(inner=F.relu), "the slope below 0 is 0: nn.LeakyReLU(0.2) lets some gradient through there."),
            (mistaken(inner=F.leaky_relu), "the slope below 0 is PyTorch's default: PatchGAN has nn.LeakyReLU(0.2)."),
            (mistaken(inner=lambda y: y), "there is no activation between the convolutions: nn.LeakyReLU(0.2)."),
        ],
        "the verdicts differ. The order is: convolve, norm, LeakyReLU(0.2), twice; then convolve once more.",
    )


def times_at_once(answer: Callable[[Mapping[str, float]], float]) -> None:
    """Holds ``answer(work)`` to Amdahl's law: all modules but the one with most work cost no time any more."""
    for work in ({"x": 50.0, "y": 50.0, "z": 50.0}, {"x": 0.2, "y": 0.7, "z": 0.1}, {"x": 30.0, "y": 10.0}, {"x": 8.0}):
        largest, whole = max(work.values()), sum(work.values())
        right = amdahl(1 - largest / whole, math.inf)
        got = answer(dict(work))
        require(isinstance(got, Real) and not isinstance(got, bool), f"a number is expected, {instead(got)}")
        where = f"work {work}: your answer is {got:g}"
        if math.isclose(got, right):
            continue
        for wrong, message in (
            (len(work), "As many times as there are modules only if all have the same work: who is done last?"),
            (largest / whole, "That is the time that is left, as a share: how many times faster is one over it."),
            (largest, "That is how long the step takes then: how many times shorter is that than one after the other?"),
            (1 / largest, "These are amounts of work, which need not add up to 1."),
            (whole / min(work.values()), "The step is over when the *last* module is done, not the first."),
            (len(work) * right, "The longest module still takes its whole time: nothing shares it."),
        ):
            require(not math.isclose(got, wrong), f"{where}. {message}")
        rest = whole - largest
        require(
            not rest or not math.isclose(got, whole / rest),
            f"{where}. The modules run side by side: what is left is the longest one, not the others.",
        )
        require(False, f"{where}. All begin at once: how long does it take until the last one is done?")
    passed("times_at_once")
