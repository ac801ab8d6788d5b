"""Checks of notebook 01: the residual block, the losses of the generators, the pool."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labcourse.check.answers import ask, drawn, exercise, expect, guarded, require
from labcourse.check.networks import compare_gradients, compare_losses, compare_network, gradients, small_model
from labkit.models import losses
from labkit.networks.layers import initialise
from labkit.networks.resnet import ResidualBlock as RightBlock
from labkit.variants.registry import make_step

BLOCK = [  # hints, see `compare_network`
    "use the argument `channels`, and make two layers, in attributes, nn.Sequential or nn.ModuleList.",
    "Is each of the two convolutions padded by 1, so that sizes are kept?",
    "the numbers differ. The order is: pad, convolve, norm, ReLU, pad, convolve, norm; then + x. No norm has weights.",
]


@exercise()
def residual_block(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels)`` with `labkit.networks.resnet.ResidualBlock`, with equal weights."""
    channels = drawn(8, lambda random: random.randrange(3, 8))
    x = torch.randn(2, channels, *drawn([12, 10], lambda random: random.sample(range(6, 16), 2)))
    right = RightBlock(channels)
    initialise(right)
    pad, norm, relu, second_pad, second_norm = 0, 2, 3, 4, 6  # places in right.conv_block

    def residual(other: nn.Module, *places: int) -> Tensor:
        layers = enumerate(right.conv_block)
        return nn.Sequential(*(other if place in places else layer for place, layer in layers))(x)

    with torch.no_grad():
        change, none, zeros = residual(nn.Identity()), nn.Identity(), nn.ZeroPad2d(1)
        mistakes = [
            (change, "you return F(x): add the skip connection, x + F(x)."),
            (2 * change, "you return F(x) + F(x): is x overwritten before the sum? Put F(x) under another name."),
            (torch.relu(x + change), "no ReLU after the sum: it would cut off the negative half of x."),
            (x + torch.relu(change), "no ReLU after the second norm: F(x) must be able to subtract, too."),
            (x + residual(zeros, pad, second_pad), "pad by reflection (nn.ReflectionPad2d), not by zeros."),
            (x + residual(none, relu), "there is no ReLU between the two convolutions."),
            (x + residual(none, norm, second_norm), "nn.InstanceNorm2d is missing after the convolutions."),
            (x + residual(none, second_norm), "nn.InstanceNorm2d is missing after the second convolution."),
        ]
    compare_network(answer, (channels,), right, x, mistakes, BLOCK)


@exercise()
def cycle_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Compares ``answer(real, reconstruction, weight)`` with `labkit.models.losses.cycle_loss`."""
    size = drawn([2, 3, 4, 5], lambda random: [random.randrange(2, 5), 3, *random.sample(range(3, 9), 2)])
    real, back = (2 * torch.rand(size) - 1 for _ in range(2))
    back[0, 0, 0, 0] = real[0, 0, 0, 0]
    difference, signs = back - real, "differences of opposite sign cancel: take absolute values before the mean."
    change = difference.abs()
    back.requires_grad_()
    for weight in drawn([7.0], lambda random: [random.uniform(2, 9), 0.0]):
        got, right = ask(answer, real, back, weight), losses.cycle_loss(real, back, weight)
        mistakes = [
            (weight * difference.square().mean(), "that is the squared difference (L2): take the absolute one."),
            (change.mean(), "the weight is not used: multiply the mean by it."),
            (weight * change.sum() / len(real), "divide by all values, not by the number of pictures: .mean() does."),
            (weight * change.mean() * len(real), "that is the sum over the pictures of the batch: take their mean."),
            (weight * difference.mean(), signs),
            (weight * difference.mean().abs(), signs),
            (10 * change.mean(), "the weight is fixed at 10: use the argument."),
        ]
        expect(got, right, mistakes, "the number differs: it should be weight * mean of |reconstruction - real|.")
        with guarded(answer):
            (slope,) = gradients(got, [back])
        slope[(change == 0) & (slope.abs() <= 1.01 * weight / change.numel())] = 0  # at 0, |x| has all of these slopes
        compare_gradients("the loss", [slope], gradients(right, [back]), ["the reconstruction"])


@exercise()
def generator_losses(answer: Callable[..., dict[str, Tensor]]) -> None:
    """Compares ``answer(G_A, G_B, D_A, D_B, real_a, real_b, weight)`` with the losses of `labkit.CycleGAN`'s step."""
    sizes = drawn([16, 12], lambda random: random.sample((12, 16, 20, 24), 2))
    weight = drawn(7.0, lambda random: random.uniform(2, 9))
    real_a, real_b = (2 * torch.rand(2, 3, *sizes) - 1 for _ in range(2))
    networks: Any = [nn.Conv2d(3, channels, 3, 1, 1) for channels in (3, 3, 1, 1)]
    for network in networks:
        network.weight.data *= 3  # so that verdicts are above and below 1
    model = small_model(0, lambda_a=weight, lambda_b=weight)
    model.G_A, model.G_B, model.D_A, model.D_B = G_A, G_B, D_A, D_B = networks
    step = make_step(model)
    its = step.losses("generators", step.inputs(real_a, real_b))
    right = {name: loss.item() for name, loss in its.items()}
    got = ask(answer, *networks, real_a, real_b, weight)
    with torch.no_grad():
        fake_b = G_A(real_a)
        twice = losses.cycle_loss(real_a, G_A(fake_b), weight)
        changed = losses.identity_loss(real_a, fake_b, weight / 2)
        mistakes = [
            ({"G_A": losses.adversarial_loss(D_B(fake_b), True)}, "D_A judges what G_A makes, D_B what G_B makes."),
            ({"G_A": losses.adversarial_loss(D_A(real_b), True)}, "the generators are judged by their fakes."),
            ({"G_A": losses.adversarial_loss(D_A(fake_b), False)}, "the answer to a fake should be 1 for them."),
            ({"cycle_A": right["cycle_A"] / weight * 10}, "λ is `weight`, in every loss, and not always 10."),
            ({"G_A": right["G_A"] / 2}, "the half belongs to the discriminators' own loss."),
            ({"cycle_A": right["cycle_A"] / weight}, "the cycle losses are weighted by λ."),
            ({"cycle_A": twice}, "G_A's fakes come back through G_B, and G_B's through G_A."),
            ({"cycle_A": right["cycle_B"], "cycle_B": right["cycle_A"]}, "cycle_A is A -> B -> A."),
            ({"idt_A": 2 * right["idt_A"]}, "the identity losses weigh λ/2."),
            ({"idt_A": changed}, "G_A(a) is to be an orange: `idt_A` asks that G_A(b) stays b."),
            ({"idt_A": right["idt_B"], "idt_B": right["idt_A"]}, "idt_A is G_A's: it makes oranges."),
        ]
    expect(got, right, mistakes, "compare each loss with its row in the table.", "small networks")
    compare_losses(answer, got, its, {"G_A": G_A.weight, "G_B": G_B.weight})


def _fakes(pool: Callable[[Tensor], Tensor], number: int) -> list[float]:
    """The numbers of the fakes that a pool returns for so many new ones."""
    return [pool(torch.full((1, 3, 2, 2), float(new)))[0, 0, 0, 0].item() for new in range(number)]


@exercise()
def fake_pool(answer: type) -> None:
    """Checks which fakes ``answer(size)`` returns for new ones, which are numbered."""
    size = drawn(5, lambda random: random.choice((3, 4, 6, 7, 8)))
    with guarded(answer):
        *pools, long = (_fakes(answer(size), number) for number in [3 * size] * 60 + [1000 * size])
    early = next((pool[:size] for pool in [*pools, long] if pool[:size] != [*range(size)]), None)
    old = [fake != new for new, fake in enumerate(long)][size:]
    share, again = sum(old) / len(old), sum(map(operator.eq, old, old[1:])) / len(old[1:])
    shared = any(fake > place and fake % 1 == 0 for place, fake in enumerate(early or []))
    require(not shared, "A new pool shows pictures of another one: make the list in __init__, not in the class.")
    require(not early, f"A pool of {size} shows {early} first: until it is full, each new fake should be shown.")
    tossed = (
        f"{share:.0%} of the fakes are older ones, not half: is a coin tossed, and an old one out before the new one?"
    )
    require(0.45 < share < 0.55, tossed)
    coin = any(pool[size] != pools[0][size] for pool in pools) or all(pool == pools[0] for pool in pools)
    require(coin, f"Call {size + 1} shows fake {pools[0][size]:g} always, with no coin: is the pool full with {size}?")
    require(0.45 < again < 0.55, f"The coin falls as for the fake before in {again:.0%} of all cases, not in half.")
    kept, ages = [*range(size)], []
    for new, fake in enumerate(long):
        if fake != new:
            told = f"Call {new + 1} shows fake {fake:g}, which should be gone: is the pool full with {size}, and does "
            require(fake in kept, told + "the new fake take the place of that which is shown?")
            ages.append(kept.index(fake))
            kept = [one for one in kept if one != fake] + [new]
    times = [round(ages.count(age) * size / len(ages), 1) for age in range(size)]
    shown = f"Those kept are shown {times} times as often as by chance, the oldest first: is the place random, "
    require(0.6 < min(times) and max(times) < 1.4, f"{shown}and among all {size}?")
