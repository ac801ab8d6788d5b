"""Checks of notebook 07: the cost of a step, a discriminator of codes, a translator's losses, a step of all players."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labcourse.check.answers import ask, drawn, exercise, expect, guarded, require
from labcourse.check.formula import Mistakes, formula
from labcourse.check.networks import compare_losses, compare_network, gradients
from labkit.models import losses
from labkit.models.deviation import DeviationGAN
from labkit.networks.codes import CodeDiscriminator, scaled
from labkit.variants.registry import make_step

Numbers = Mapping[str, float]  # by kind of network


def _right_cost(passes: Numbers, gflop: Numbers) -> float:
    return 3 * sum(times * gflop[kind] for kind, times in passes.items())


def _other_step(random: Random) -> tuple[Numbers, Numbers]:
    kinds = random.sample(["generator", "encoder", "translator", "decoder", "judge"], 4)
    passes = {kind: random.randrange(1, 7) for kind in kinds[: random.randrange(1, 5)]}
    return passes, {kind: random.uniform(2, 90) for kind in sorted(kinds)}


@formula(_right_cost, [({"T": 2, "D": 3}, {"D": 6.0, "T": 80.0}), ({"E": 2}, {"D": 6.0, "E": 7.0})], _other_step)
def step_cost(passes: Numbers, gflop: Numbers) -> Mistakes:
    """Compares ``answer(passes, gflop)`` with the cost of forward and backward passes of all networks."""
    right = _right_cost(passes, gflop)
    yield right / 3, "Those are the forward passes alone: each is followed by a backward pass."
    yield right * 2 / 3, "A backward pass costs two forward passes: with its forward pass, that is three."
    yield 3 * sum(gflop[kind] for kind in passes), "That is one pass of each kind: how often does each of them run?"
    in_order = sum(times * cost for times, cost in zip(passes.values(), gflop.values(), strict=False))
    yield 3 * in_order, "The two dicts need not have one order: look a kind's cost up by its name."
    once = sum((times + 2) * gflop[kind] for kind, times in passes.items())
    yield once, "Each forward pass has a backward pass of its own, not each kind one."
    yield None, "For each kind that runs: how often, times the cost of one forward pass and its backward pass."


def _right_losses(encoder: Any, translator: Any, judge: Any, real_a: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    code = scaled(encoder(real_a).detach())[0]
    translated = translator(code)
    return losses.adversarial_loss(judge(translated), True), losses.deviation_loss(code, translated, weight)


@exercise()
def translator_losses(answer: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Checks the losses of ``answer(encoder, translator, discriminator, real_a, weight)``, and where gradients flow."""
    width, size = drawn((6, 16), lambda random: (random.randrange(3, 9), random.choice((24, 28))))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    encoder, translator = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 3, 1, 1)
    judge, real_a = nn.Conv2d(width, 1, 3), torch.rand(2, 3, size, size + 4) * 2 - 1
    judge.weight.data *= 9  # so that verdicts are above and below 1
    given = encoder, translator, judge, real_a, weight
    its, got = _right_losses(*given), ask(answer, *given)

    def mistaken(code: Tensor, translated: Tensor, judged: Tensor) -> tuple[float, float]:
        return (judge(judged) - 1).square().mean().item(), (weight * (translated - code).abs().mean()).item()

    with torch.no_grad():
        raw = encoder(real_a)
        code, scale = scaled(raw)
        translated = translator(code)
        right, change = tuple(loss.item() for loss in its), translated - code
        mistakes = [
            (mistaken(raw, translator(raw), translator(raw)), "scaled(code)[0] is what the translator is given."),
            (mistaken(raw, scale * translated, scale * translated), "compare and judge scaled codes: z, not s * z."),
            ((mistaken(code, translated, scale * translated)[0], right[1]), "judge the scaled code: z, not s * z."),
            ((mistaken(code, translated, code)[0], right[1]), "the discriminator judges the translated code."),
            ((judge(translated).square().mean(), right[1]), "to deceive the discriminator, its verdict should be 1."),
            ((right[0], change.abs().mean()), "the deviation's weight is not used."),
            ((right[0], weight * change.square().mean()), "that is the squared change (L2): take absolute values."),
            ((right[0], weight * change.mean()), "changes of opposite sign cancel: take absolute values first."),
            (right[::-1], "the adversarial loss comes first, then the deviation."),
        ]
    expect(got, right, mistakes, "compare each loss with its formula.", "small networks")
    named, its_named = (dict(zip(("the adversarial loss", "the deviation"), one, strict=True)) for one in (got, its))
    ends = {"the encoder": encoder.weight, "the translator": translator.weight}
    compare_losses(answer, named, its_named, ends)
    nn.init.dirac_(translator.weight)
    cast(Tensor, translator.bias).data.zero_()
    unchanged = ask(answer, *given)
    with guarded(answer):
        found = [gradients(loss, [*ends.values()]) for loss in unchanged]
    finite = all(one.isfinite().all() for of_loss in found for one in of_loss)
    require(finite, "a gradient is nan while the translator changes nothing, as at first: take .abs(), not a root.")


UPDATES = {  # what each network should have learned
    "encoder": "it learns from the reconstruction of both domains, and from no other player's loss.",
    "decoder": "it should give back the pictures of both domains from their codes, which are not scaled for it.",
    "translator": "it lowers L_G_A + L_dev_A, with the codes from before the autoencoder's update, scaled.",
    "discriminator": "half of each square counts; fakes are those from before any update; no other loss teaches it.",
}


def _learned(
    answer: Callable[..., None], networks: list[nn.Conv2d], batches: list[tuple[Tensor, Tensor]], weight: float
) -> tuple[list[list[Tensor]], list[str]]:
    """All weights of encoder, decoder, translator and discriminator after each call, and whose optimisers took steps.

    The answer is called for each of the `batches`, with the four networks, the players' optimisers (gradient descent
    with a rate of 0.1), pictures of A and of B, and the weight of the deviation.
    """
    after, steps = [], []
    players = {"autoencoder": networks[:2], "translator": networks[2:3], "discriminator": networks[3:]}
    optimizers = {name: torch.optim.SGD(nn.ModuleList(own).parameters(), lr=0.1) for name, own in players.items()}
    for name, optimizer in optimizers.items():
        optimizer.register_step_post_hook(lambda *_, name=name: steps.append(name))
    for batch in batches:
        answer(*networks, optimizers, *batch, weight)
        after.append([nn.utils.parameters_to_vector(one.parameters()).detach() for one in networks])
    return after, steps


def _judges(
    networks: list[nn.Conv2d], real_a: Tensor, translated: Tensor, judged: Tensor
) -> Iterator[tuple[Tensor, str]]:
    """The discriminator's weights after likely mistakes in a first call, from the right weights after it."""
    encoder, _, translator, judge = networks
    code, later = scaled(encoder(real_a))[0].detach(), deepcopy(translator)
    nn.utils.vector_to_parameters(translated, later.parameters())

    def slope(fake: Tensor, deceived: bool) -> Tensor:
        return torch.cat(
            [one.flatten() for one in gradients(losses.adversarial_loss(judge(fake), deceived), [*judge.parameters()])]
        )

    old, new = (slope(one(code), False) / 2 for one in (translator, later))
    yield judged - 0.1 * slope(translator(code), True), "the translator's loss left a gradient in it: clear that first."
    yield judged + 0.1 * (old - new), "its fakes are those from before the translator's update."
    yield 2 * judged - nn.utils.parameters_to_vector(judge.parameters()).detach(), "half of each square counts."


@exercise()
def learn(answer: Callable[..., None]) -> None:
    """Compares what networks have learned in two calls of the answer with two steps of `labkit.DeviationGAN`."""
    width, size = drawn((6, 12), lambda random: (random.randrange(3, 9), random.choice((12, 16))))
    weight = drawn(3.0, lambda random: random.uniform(2, 9))
    pictures = [2 * torch.rand(2, 3, size, size + 4) - 1 for _ in range(4)]
    batches = [*zip(pictures[::2], pictures[1::2], strict=True)]
    model = DeviationGAN(ngf=2, ndf=1, blocks=1, lambda_deviation=weight, pool_size=0)
    sizes = (3, width), (width, 3), (width, width), (width, 1)
    networks = [nn.Conv2d(*channels, 3, 1, 1) for channels in sizes]

    def right(*given: Any) -> None:
        *networks, optimizers, real_a, real_b, _ = given
        model.encoder, model.decoder, model.T_A, model.D_A = networks
        step = make_step(model)
        step.optimizers = optimizers
        step.run(step.inputs(real_a, real_b))

    stopped = "Detach the codes that translator and discriminator get, and the translated one that is judged."
    its, order = _learned(right, deepcopy(networks), batches, weight)
    mistaken = [*_judges(networks, batches[0][0], *its[0][2:])]
    with guarded(answer, networks, batches, if_it_fails=stopped):
        after, players = _learned(answer, networks, batches, weight)
    took = f"in two calls, these optimisers took steps: {', '.join(players) or 'none'}. Right is {', '.join(order)}."
    require(players == order, took)
    for wrong, told in mistaken:
        require(
            not torch.allclose(after[0][3], wrong, atol=1e-5), f"the discriminator has learned something else: {told}"
        )
    calls = "", " in the second call (is a gradient of the first one left?)"
    for call, mine, right_ones in zip(calls, after, its, strict=True):
        for (name, told), got, weights in zip(UPDATES.items(), mine, right_ones, strict=True):
            require(torch.allclose(got, weights, atol=1e-5), f"the {name} has learned something else{call}: {told}")


DISCRIMINATOR = [  # hints, see `compare_network`
    "of PatchGAN's five, three are left, 4x4: 4 * width channels, then twice as many, then one verdict, with a bias.",
    "Only the first of the three halves the code once more, and all are padded by 1.",
    "the verdicts differ. The order is: convolve, norm, LeakyReLU(0.2), twice; then convolve. No norm has weights.",
]


@exercise()
def code_discriminator(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels, width)`` with `labkit.networks.codes.CodeDiscriminator`, with equal weights."""
    sizes = drawn((12, 2), lambda random: (random.randrange(13, 20), random.randrange(3, 6)))
    codes = torch.randn(2, sizes[0], *drawn([16, 12], lambda random: random.sample((12, 14, 18), 2)))
    right = CodeDiscriminator(*sizes)
    convolutions = [layer for layer in right.modules() if isinstance(layer, nn.Conv2d)]

    def mistaken(first: bool, second: bool, third: bool = False, slope: float = 0.2) -> Tensor:
        y = codes
        for convolution, normed in zip(convolutions, (first, second, third), strict=True):
            y = F.instance_norm(convolution(y)) if normed else convolution(y)
            y = y if convolution is convolutions[-1] else F.leaky_relu(y, slope)
        return y

    with torch.no_grad():
        mistakes = [
            (mistaken(False, True), "the first layer is normalised, too: it was PatchGAN's third."),
            (mistaken(False, False), "nn.InstanceNorm2d is missing after the first two convolutions."),
            (mistaken(True, True, True), "the verdicts are normalised: then they say the same of every code."),
            (torch.sigmoid(right(codes)), "a sigmoid bounds the verdicts: the least-squares loss needs none."),
            (mistaken(True, True, slope=0.01), "the slope below 0 is PyTorch's default: take nn.LeakyReLU(0.2)."),
            (mistaken(True, True, slope=0.0), "the slope below 0 is 0: take nn.LeakyReLU(0.2)."),
        ]
    for weight in compare_network(answer, sizes, right, codes, mistakes, DISCRIMINATOR):
        size, goal = weight.square().mean().sqrt().item(), 0.02 * (weight.dim() > 1)
        told = f"the initial weights of shape {(*weight.shape,)} are about {size:.3f} large, not {goal}"
        require(abs(size - goal) < 0.005, f"{told}: call initialise(self) last.")
