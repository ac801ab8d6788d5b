"""Checks of notebook 07: a discriminator of codes, and the losses of a translator of codes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.course.check.answers import a_seed, drawn, exercise, expect, failing, require
from labkit.models.losses import adversarial_loss, deviation_loss
from labkit.networks.codes import CodeDiscriminator, scaled


@exercise(adversarial_loss, deviation_loss)
def translator_losses(answer: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Checks the losses of ``answer(encoder, translator, discriminator, real_a, weight)``, and where gradients flow."""
    torch.manual_seed(drawn(0, a_seed))
    width, size = drawn((6, 16), lambda random: (random.randrange(3, 9), random.choice((12, 20))))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    encoder, translator = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 3, padding=1)
    judge, real_a = nn.Conv2d(width, 1, 3), torch.rand(2, 3, size, size) * 2 - 1

    def losses(code: Tensor, translated: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
        return (judge(judged) - 1).square().mean(), weight * (translated - code).abs().mean()

    with torch.no_grad():
        raw = encoder(real_a)
        code, scale = scaled(raw)
        translated = translator(code)
        right, change = losses(code, translated, translated), translated - code
        hides = weight * change.square().mean(), weight * change.abs().sum(), weight * change.mean()
        mistakes = [
            (losses(raw, translator(raw), translator(raw)), "scaled(code)[0] is what the translator is given."),
            (losses(raw, scale * translated, scale * translated), "compare and judge scaled codes: z, not s * z."),
            ((losses(code, translated, code)[0], right[1]), "the discriminator judges the translated code."),
            ((judge(translated).square().mean(), right[1]), "to deceive the discriminator, its verdict should be 1."),
            ((right[0], change.abs().mean()), "the deviation's weight is not used."),
            ((right[0], hides[0]), "the squared change (L2) hardly minds small ones: take absolute values."),
            ((right[0], hides[1]), "that is the sum of the changes: take the mean, or the loss grows with the code."),
            ((right[0], hides[2]), "changes of opposite sign cancel: take absolute values before the mean."),
            ((right[1], right[0]), "the adversarial loss comes first, then the deviation."),
        ]
    got = answer(encoder, translator, judge, real_a, weight)
    expect(got, tuple(loss.item() for loss in right), mistakes, "compare each loss with its formula.")
    require(all(loss.requires_grad for loss in got), "no gradient reaches the translator: detach only the code.")
    for name, loss in zip(("adversarial loss", "deviation"), got, strict=True):
        weights = [encoder.weight, translator.weight]
        of_encoder, of_translator = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        missing = f"no gradient of the {name} reaches the translator: detach only the code."
        require(of_translator is not None, missing)
        require(of_encoder is None, f"gradients of the {name} reach the encoder: detach its code.")


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
