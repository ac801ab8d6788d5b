"""Checks of notebook 01: the residual block, the cycle loss, the pool."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.course.check.answers import expect, failing, passed, require
from labkit.models.losses import cycle_loss as right_cycle_loss
from labkit.networks.resnet import ResidualBlock as RightBlock
from labkit.pool import Pool as RightPool


def residual_block(answer: type[nn.Module]) -> None:
    """Compares ``answer(channels)`` with `labkit.networks.resnet.ResidualBlock`, with equal weights."""
    torch.manual_seed(0)
    right, block = RightBlock(8), answer(8)
    x = torch.randn(2, 8, 12, 10)
    weights, shapes = list(block.parameters()), [tuple(weight.shape) for weight in right.parameters()]
    require(
        sorted(tuple(weight.shape) for weight in weights) == sorted(shapes),
        f"the block's weights have shapes {[tuple(weight.shape) for weight in weights]}, they should have {shapes}: "
        "two 3x3 convolutions, channels in, channels out, with biases; instance norm has no weights.",
    )
    first, second = (layer for layer in right.conv_block if isinstance(layer, nn.Conv2d))

    def residual(padding: str = "reflect", inner: Callable = F.relu, norms: tuple[bool, bool] = (True, True)) -> Tensor:
        y = x
        for convolution, normed, activation in ((first, norms[0], inner), (second, norms[1], lambda z: z)):
            y = convolution(F.pad(y, (1, 1, 1, 1), mode=padding))
            y = activation(F.instance_norm(y) if normed else y)
        return y

    with torch.no_grad():
        for mine, value in zip(weights, right.parameters(), strict=True):
            mine.copy_(value)
        given = x.clone()
        with failing(
            RuntimeError, "x + F(x) fails: is each of the two convolutions padded by 1, so that sizes are kept?"
        ):
            got = block(given)
        expect(
            got,
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
    require(given.equal(x), "x is changed in place, and the backward pass needs it: return x + F(x), not x += F(x).")
    passed("residual_block")


def cycle_loss(answer: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """Compares ``answer(real, reconstruction, weight)`` with `labkit.models.losses.cycle_loss`."""
    torch.manual_seed(0)
    real, back = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4).requires_grad_()
    difference = (back - real).detach()
    got = answer(real, back, 7.0)
    expect(
        got,
        right_cycle_loss(real, back, 7.0),
        [
            (7 * difference.square().mean(), "that is the squared difference (L2): the paper takes the absolute one."),
            (difference.abs().mean(), "the weight is not used: multiply the mean by it."),
            (7 * difference.abs().sum(), "that is the sum: take the mean, or the loss grows with the picture."),
            (7 * difference.mean(), "differences of opposite sign cancel: take absolute values before the mean."),
            (10 * difference.abs().mean(), "the weight is fixed at 10: use the argument."),
        ],
        "the number differs: it should be weight * mean of |reconstruction - real|.",
    )
    require(got.requires_grad, "no gradient flows back: leave out .detach(), .item() and torch.no_grad().")
    passed("cycle_loss")


def pool(answer: type) -> None:
    """Compares ``answer(size, seed)`` with `labkit.pool.Pool` on a long row of pictures, and on batches."""
    size, n = 6, 600
    pictures = torch.arange(float(n)).view(n, 1, 1, 1, 1)

    def through(pool: Callable, batches: Tensor) -> list[int]:
        returned = [pool(batch) for batch in batches]
        require(
            all(isinstance(one, Tensor) and one.shape == batches.shape[1:] for one in returned),
            "the pool must return a tensor of the same shape as the batch of pictures that it was given.",
        )
        return torch.cat(returned).int().flatten().tolist()

    back = through(answer(size, seed=0), pictures)
    older = [i for i in range(size, n) if back[i] != i]
    often = max(back.count(number) for number in set(back[size:]))
    twice = any(back[i] >= size and back[i] not in older for i in older)
    pairs = pictures.view(-1, 2, 1, 1, 1)
    draws = "toss with self.random.random() > 0.5, then choose with self.random.randrange(self.size)."
    for holds, message in (
        (back[:size] == [*range(size)], f"while the pool fills, the first {size} pictures come back as they are."),
        (len(older) > 0, "every picture comes straight back: half of them should be older ones."),
        (often <= 2, "old pictures come back again and again: one that is given back leaves, the new one is kept."),
        (len(older) < 0.9 * (n - size), "nearly every picture is swapped: only half should be, by a coin toss."),
        (not twice, "a picture came back twice, as new and from the pool: keep it, or give it back, not both."),
        (back == through(RightPool(size, seed=0), pictures), f"it behaves like a pool, but draws differently: {draws}"),
    ):
        require(holds, message)
    require(
        through(answer(size, seed=0), pairs) == through(RightPool(size, seed=0), pairs),
        "a batch of two is treated as one picture: toss, keep and give back each of its pictures in turn.",
    )
    passed("pool")
