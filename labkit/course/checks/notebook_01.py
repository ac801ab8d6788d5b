"""Checks of notebook 01: the residual block, the cycle loss, the pool."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.course.checks.answers import compare, passed, require
from labkit.models.losses import cycle_loss as right_cycle_loss
from labkit.networks.resnet import ResidualBlock as RightBlock
from labkit.pool import Pool as RightPool


def residual_block(answer: type[nn.Module]) -> None:
    """Holds ``answer(channels)`` to `labkit.networks.generators.ResidualBlock`, weights being equal."""
    torch.manual_seed(0)
    right, block = RightBlock(8), answer(8)
    x = torch.randn(2, 8, 12, 10)
    weights = list(block.parameters())
    expected = [tuple(weight.shape) for weight in right.parameters()]
    require(
        sorted(tuple(weight.shape) for weight in weights) == sorted(expected),
        f"the block's weights have shapes {[tuple(weight.shape) for weight in weights]}, they should have {expected}: "
        "two 3x3 convolutions, channels in, channels out, with biases; instance norm has no weights.",
    )
    with torch.no_grad():
        for mine, value in zip(weights, right.parameters(), strict=True):
            mine.copy_(value)
        first, second = (layer for layer in right.conv_block if isinstance(layer, nn.Conv2d))

        def residual(
            padding: str = "reflect", inner: Callable = F.relu, norms: tuple[bool, bool] = (True, True)
        ) -> Tensor:
            y = x
            for convolution, normed, activation in ((first, norms[0], inner), (second, norms[1], lambda z: z)):
                y = convolution(F.pad(y, (1, 1, 1, 1), mode=padding))
                y = activation(F.instance_norm(y) if normed else y)
            return y

        compare(
            block(x.clone()),
            right(x.clone()),
            [
                (residual(), "you return F(x): add the skip connection, x + F(x)."),
                (F.relu(x + residual()), "no ReLU after the sum: it would cut off the negative half of x."),
                (x + F.relu(residual()), "no ReLU after the second norm: F(x) must be able to subtract, too."),
                (x + residual("constant"), "the borders differ: pad by reflection (nn.ReflectionPad2d), not by zeros."),
                (x + residual("replicate"), "the borders differ: pad by reflection, not by repeating the edge."),
                (x + residual(inner=lambda z: z), "there is no ReLU between the two convolutions."),
                (x + residual(norms=(False, False)), "nn.InstanceNorm2d is missing after the convolutions."),
                (x + residual(norms=(True, False)), "nn.InstanceNorm2d is missing after the second convolution."),
                (x + residual(norms=(False, True)), "nn.InstanceNorm2d is missing after the first convolution."),
            ],
            "the numbers differ. The order is: pad, convolve, norm, ReLU, pad, convolve, norm; then add x.",
        )
    passed("residual_block")


def cycle_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Holds ``answer(real, reconstruction, weight)`` to `labkit.models.losses.cycle_loss`."""
    torch.manual_seed(0)
    real, back = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4).requires_grad_()
    right = right_cycle_loss(real, back, 7.0)
    difference = (back - real).detach()
    got = answer(real, back, 7.0)
    compare(
        got,
        right,
        [
            (7 * difference.square().mean(), "that is the squared difference (L2): the paper takes the absolute one."),
            (difference.abs().mean(), "the weight is not used: multiply the mean by it."),
            (7 * difference.abs().sum(), "that is the sum: take the mean, or the loss grows with the picture."),
            (7 * difference.mean(), "differences of opposite sign cancel: take absolute values before the mean."),
            (10 * difference.abs().mean(), "the weight is fixed at 10: use the argument."),
        ],
        "the number differs: it is weight * mean of |reconstruction - real|.",
    )
    require(got.requires_grad, "no gradient flows back: leave out .detach(), .item() and torch.no_grad().")
    passed("cycle_loss")


def pool(answer: type) -> None:
    """Holds ``answer(size, seed)`` to `labkit.pool.Pool`: what comes back for a long row of pictures."""
    size, n = 6, 600
    numbers = torch.arange(float(n)).view(n, 1, 1, 1, 1)
    student = answer(size, seed=0)
    back = [student(picture) for picture in numbers]
    require(
        all(isinstance(picture, Tensor) and picture.shape == (1, 1, 1, 1) for picture in back),
        "the pool must return a tensor of the shape of the pictures it was given: as many as came in.",
    )
    back = [int(picture) for picture in back]
    require(back[:size] == list(range(size)), f"while the pool fills, the first {size} pictures come back as they are.")
    require(back != list(range(n)), "every picture comes straight back: half of them should be older ones.")
    older = [i for i in range(size, n) if back[i] != i]
    require(
        max(back.count(number) for number in set(back[size:])) <= 2,
        "old pictures come back again and again: the one given back leaves, the new one takes its slot.",
    )
    require(len(older) < 0.9 * (n - size), "nearly every picture is swapped: only half should be, by a coin toss.")
    require(
        all(back[i] < size or back[i] in older for i in older),
        "a picture came back twice: once as new and once from the pool. Keep it, or give it back, not both.",
    )
    right = RightPool(size, seed=0)
    require(
        back == [int(right(picture)) for picture in numbers],
        "it behaves like a pool, but draws differently: toss with self.random.random() > 0.5, "
        "then choose with self.random.randrange(self.size).",
    )
    pair = answer(1, seed=0)(torch.arange(2.0).view(2, 1, 1, 1))
    require(pair.shape == (2, 1, 1, 1), "a batch of two must come back as a batch of two: treat its pictures in turn.")
    passed("pool")
