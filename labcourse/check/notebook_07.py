"""Checks of notebook 07: a discriminator of codes, the losses of a translator of codes, and a step of all players."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labcourse import observe
from labcourse.check.answers import CHANGED, ask, drawn, exercise, expect, require
from labkit.models import losses
from labkit.models.deviation import DeviationGAN
from labkit.networks.codes import CodeDiscriminator, scaled
from labkit.variants.registry import make_step


@exercise(losses)
def translator_losses(answer: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Checks the losses of ``answer(encoder, translator, discriminator, real_a, weight)``, and where gradients flow."""
    width, size = drawn((6, 16), lambda random: (random.randrange(3, 9), random.choice((12, 20))))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    encoder, translator = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 3, padding=1)
    judge, real_a = nn.Conv2d(width, 1, 3), torch.rand(2, 3, size, size) * 2 - 1

    def losses(code: Tensor, translated: Tensor, judged: Tensor) -> tuple[float, float]:
        return (judge(judged) - 1).square().mean().item(), (weight * (translated - code).abs().mean()).item()

    with torch.no_grad():
        raw = encoder(real_a)
        code, scale = scaled(raw)
        translated = translator(code)
        right, change = losses(code, translated, translated), translated - code
        mistakes = [
            (losses(raw, translator(raw), translator(raw)), "scaled(code)[0] is what the translator is given."),
            (losses(raw, scale * translated, scale * translated), "compare and judge scaled codes: z, not s * z."),
            ((losses(code, translated, code)[0], right[1]), "the discriminator judges the translated code."),
            ((judge(translated).square().mean(), right[1]), "to deceive the discriminator, its verdict should be 1."),
            ((right[0], change.abs().mean()), "the deviation's weight is not used."),
            ((right[0], weight * change.square().mean()), "that is the squared change (L2): take absolute values."),
            ((right[0], weight * change.mean()), "changes of opposite sign cancel: take absolute values first."),
            (right[::-1], "the adversarial loss comes first, then the deviation."),
        ]
    networks = observe.described(encoder, translator, judge)
    got, reached = ask(answer, networks, real_a, weight, through=observe.translation)
    expect(got, right, mistakes, "compare each loss with its formula.")
    for name, (of_encoder, of_translator) in zip(("adversarial loss", "deviation"), reached, strict=True):
        require(of_translator, f"no gradient of the {name} reaches the translator: detach only the code.")
        require(not of_encoder, f"gradients of the {name} reach the encoder: detach its code.")


UPDATES = {  # what each network should have learned
    "encoder": "it learns from the reconstruction of both domains, and from no other player's loss.",
    "decoder": "it should give back the pictures of both domains from their codes, which are not scaled for it.",
    "translator": "it lowers L_G_A + L_dev_A, with the codes from before the autoencoder's update, scaled.",
    "discriminator": "half of each square counts; the fakes are those from before the translator's update; and that "
    "player's loss has left gradients here: zero_grad first.",
}


@exercise(losses)
def learn(answer: Callable[..., None]) -> None:
    """Compares what networks have learned in one call of the answer with a step of `labkit.DeviationGAN`."""
    width, size = drawn((6, 12), lambda random: (random.randrange(3, 9), random.choice((12, 16))))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    real_a, real_b = torch.rand(2, 2, 3, size, size) * 2 - 1
    model = DeviationGAN(ngf=2, ndf=1, blocks=1, lambda_deviation=weight, pool_size=0)
    networks = [nn.Conv2d(*sizes, 3, padding=1) for sizes in ((3, width), (width, 3), (width, width), (width, 1))]
    model.encoder, model.decoder, model.T_A, model.D_A = networks
    before = observe.described(*networks)
    stopped = "Detach the codes that translator and discriminator get, and the translated one that is judged."
    after = ask(answer, before, real_a, real_b, weight, through=observe.learned, if_it_fails=stopped)
    step = make_step(model)
    step.optimizers = observe.optimizers_of(*networks)
    step.run(step.inputs(real_a, real_b))
    for (name, told), network, got, (unmoved, *_) in zip(UPDATES.items(), networks, after, before, strict=True):
        require(not torch.equal(got, unmoved), f"the {name} is as it was: does its optimiser take a step?")
        require(torch.allclose(got, network.weight, atol=1e-5), f"the {name} has learned something else: {told}")


@exercise(CodeDiscriminator)
def code_discriminator(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels, width)`` with `labkit.networks.codes.CodeDiscriminator`, with equal weights."""
    sizes = drawn((12, 2), lambda random: (random.randrange(8, 20), random.randrange(2, 5)))
    right = CodeDiscriminator(*sizes)
    height, width = drawn([16, 12], lambda random: random.choices((12, 14, 18), k=2))
    codes = torch.randn(2, sizes[0], height, width)
    seen = ask(answer, sizes, codes, through=observe.layers)
    mine = [layer for layer in seen["layers"] if layer["kind"] == "Conv2d"]
    its = [layer for layer in right.modules() if isinstance(layer, nn.Conv2d)]
    left = "of PatchGAN's five, three are left, since a code has been halved twice already."
    require(len(mine) == len(its), f"there are {len(mine)} convolutions (nn.Conv2d): {left}")
    for name, advice in (
        ("kernel_size", "PatchGAN's are 4x4."),
        ("stride", "only the first of the three halves the code once more."),
        ("padding", "PatchGAN pads by 1 everywhere, so that a verdict is lost at each layer that does not halve."),
        ("out_channels", "4 * width, then twice as many, then one verdict."),
        ("in_channels", "the first takes a code, the others the output of the one before."),
    ):
        got, expected = [layer[name] for layer in mine], [getattr(layer, name) for layer in its]
        require(got == expected, f"the convolutions' {name} is {got}: {advice}")
    weights, names = seen["weights"], [layer["prefix"] for layer in mine]
    require(
        f"{names[-1]}bias" in weights, "the last convolution has no bias, and no norm after it that would remove one."
    )
    spread = torch.cat([weights[f"{name}weight"].flatten() for name in names]).std().item()
    initial = f"the initial weights scatter by {spread:.3f}, not by 0.02: call initialise(self) last."
    require(0.015 < spread < 0.025, initial)

    def mistaken(first: bool, second: bool, third: bool = False, slope: float = 0.2) -> Tensor:
        y = codes
        for convolution, normed in zip(its, (first, second, third), strict=True):
            y = F.instance_norm(convolution(y)) if normed else convolution(y)
            y = y if convolution is its[-1] else F.leaky_relu(y, slope)
        return y

    with torch.no_grad():
        same = {}
        for name, other in zip(names, its, strict=True):
            same[f"{name}weight"] = other.weight.detach()
            if f"{name}bias" in weights and other.bias is not None:  # a norm would remove it, so it may be left out
                same[f"{name}bias"] = nn.init.normal_(other.bias).detach()
        got, kept = ask(answer, sizes, same, codes, through=observe.network_output, if_it_fails="Is forward right?")
        require(kept, CHANGED)
        expect(
            got,
            right(codes),
            [
                (mistaken(False, True), "the first layer is normalised, too: its input is no picture any more."),
                (mistaken(False, False), "nn.InstanceNorm2d is missing after the first two convolutions."),
                (mistaken(True, True, True), "the verdicts are normalised: then they say the same of every code."),
                (torch.sigmoid(right(codes)), "a sigmoid bounds the verdicts: the least-squares loss needs none."),
                (mistaken(True, True, slope=0.01), "the slope below 0 is PyTorch's default: take nn.LeakyReLU(0.2)."),
                (mistaken(True, True, slope=0.0), "the slope below 0 is 0: take nn.LeakyReLU(0.2)."),
            ],
            "the verdicts differ. The order is: convolve, norm, LeakyReLU(0.2), twice; then convolve once more.",
        )
