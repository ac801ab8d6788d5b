"""Checks of notebook 01: the residual block, the losses of the generators, the pool."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labcourse import observe
from labcourse.check.answers import CHANGED, ask, drawn, exercise, expect, require
from labkit.models import losses
from labkit.models.losses import adversarial_loss, identity_loss
from labkit.models.losses import cycle_loss as right_cycle_loss
from labkit.models.pool import Pool
from labkit.networks.resnet import ResidualBlock as RightBlock
from labkit.variants.registry import make_step


@exercise(RightBlock)
def residual_block(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels)`` with `labkit.networks.resnet.ResidualBlock`, with equal weights."""
    channels = drawn(8, lambda random: random.randrange(3, 12))
    height, width = drawn((12, 10), lambda random: (random.randrange(6, 16), random.randrange(6, 16)))
    right = RightBlock(channels)
    x = torch.randn(2, channels, height, width)
    seen = ask(answer, (channels,), x, through=observe.layers)
    weights = seen["weights"]
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


@exercise(losses)
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


@exercise(losses)
def generator_losses(answer: Callable[..., dict[str, Tensor]]) -> None:
    """Compares ``answer(G_A, G_B, D_A, D_B, real_a, real_b, weight)`` with the losses of `labkit.CycleGAN`'s step."""
    size, weight = drawn((16, 7.0), lambda random: (random.choice((16, 20, 24)), random.uniform(2, 9)))
    real_a, real_b = torch.rand(2, 1, 3, size, size) * 2 - 1
    model = observe.small_model(0, lambda_a=weight, lambda_b=weight)
    networks = [nn.Conv2d(3, channels, 3, padding=1) for channels in (3, 3, 1, 1)]
    for name, network in zip(("G_A", "G_B", "D_A", "D_B"), networks, strict=True):
        setattr(model, name, network)
    given = observe.described(*networks), real_a, real_b, weight
    got, learns = ask(answer, *given, through=observe.losses_of_generators)
    step = make_step(model)
    with torch.no_grad():
        right = {name: loss.item() for name, loss in step.losses("generators", step.inputs(real_a, real_b)).items()}
        fake_b = model.G_A(real_a)
        twice = right_cycle_loss(real_a, model.G_A(fake_b), weight)
        changed = identity_loss(real_a, fake_b, weight / 2)
        expect(
            got,
            right,
            [
                ({"G_A": adversarial_loss(model.D_B(fake_b), True)}, "D_A judges what G_A makes, D_B what G_B makes."),
                ({"G_A": adversarial_loss(model.D_A(real_b), True)}, "the generators are judged by their fakes."),
                ({"G_A": adversarial_loss(model.D_A(fake_b), False)}, "the answer to a fake should be 1 for them."),
                ({"cycle_A": right["cycle_A"] / weight}, "the cycle losses are weighted by λ."),
                ({"cycle_A": twice}, "G_A's fakes come back through G_B, and G_B's through G_A."),
                ({"cycle_A": right["cycle_B"], "cycle_B": right["cycle_A"]}, "cycle_A is A -> B -> A."),
                ({"idt_A": 2 * right["idt_A"]}, "the identity losses weigh λ/2."),
                ({"idt_A": changed}, "G_A(a) is to be an orange: `idt_A` asks that G_A(b) stays b."),
                ({"idt_A": right["idt_B"], "idt_B": right["idt_A"]}, "idt_A is G_A's: it makes oranges."),
            ],
            "compare each loss with its row in the table.",
            "small networks",
        )
    require(learns, "no gradient flows back: leave out .detach(), .item() and torch.no_grad().")


@exercise(Pool)
def fake_pool(answer: type) -> None:
    """Checks which fakes ``answer(size)`` returns for new ones, which are numbered."""
    size = drawn(5, lambda random: random.randrange(3, 9))
    first = [ask(answer, size, size + 1, through=observe.fakes_seen)[-1] for _ in range(20)]
    seen = ask(answer, size, 200 * size, through=observe.fakes_seen)
    old = [fake for new, fake in enumerate(seen) if fake != new]
    later = seen[size:]
    for mistake, message in (
        (seen[:size] != list(range(size)), "Until the pool is full, the discriminator sees each new fake."),
        (not old, "It never shows an older fake: are new ones kept, and is the coin tossed?"),
        (
            len({*first}) < 2,
            f"A full pool tosses a coin, and yours shows fake {size + 1} always: is it full with {size}?",
        ),
        (not 0.4 < len(old) / len(later) < 0.6, f"{len(old) / len(later):.0%} of the fakes are older ones, not half."),
        (len({*later}) < len(later), "A fake comes back twice: the new one takes the place of that which is shown."),
        (old == sorted(old), "It always shows the oldest fake: a random one is asked for."),
    ):
        require(not mistake, message)
