"""Checks of notebook 13: the bytes of a norm, a masked kernel, instance norm and ReLU in one, its gradient, races."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from labkit.course.blocks import OutOfBounds, Run, launch
from labkit.course.check.answers import WrongAnswer, a_seed, cases, drawn, exercise, expect, require, require_each

EMPTY = -777.0  # in results, before a kernel has written them
BEHIND = {
    "load": "The last block ends behind the last number: load only where i < n.",
    "store": "The last block ends behind the last number: store only where i < n, too, or it overwrites other memory.",
    "atomic": "The last block ends behind the last number: add only where i < n.",
}


def _run(answer: Callable, programs: int, *arguments: Any, where: str, **constants: Any) -> Run:
    """Launches an answer's kernel, and explains a use of memory that is not there."""
    try:
        return launch(answer, programs, *arguments, **constants)
    except OutOfBounds as error:
        raise WrongAnswer(f"{where}: {error}. {BEHIND[error.kind]}") from error


def _other_traffic(random: Random) -> tuple[int, int, float]:
    return random.randrange(1, 10**7), random.choice([2, 4, 8]), random.uniform(1e11, 5e12)


@exercise()
def traffic(answer: Callable[[int, int, float], dict[str, float]]) -> None:
    """Compares ``answer(values, itemsize, bytes_per_s)`` with the bytes that three kernels and one have to move."""
    usual = [(1_048_576, 4, 1.555e12), (16_777_216, 2, 3.35e12)]
    for values, itemsize, bytes_per_s in cases(usual, _other_traffic):
        size = values * itemsize
        fused_us = 1e6 * 2 * size / bytes_per_s
        expect(
            answer(values, itemsize, bytes_per_s),
            {"apart": 5 * size, "fused": 2 * size, "times_faster": 2.5, "fused_us": fused_us},
            [
                ({"apart": 5 * values}, "Those are numbers, not bytes: each takes `itemsize` bytes."),
                ({"apart": 3 * size}, "That is what the three kernels read. What they write has to move, too."),
                (
                    {"apart": 4 * size},
                    "One of five is missing. The norm reads its input twice: for the mean and variance, and to "
                    "normalise. It writes h, which ReLU reads, to write y.",
                ),
                ({"apart": 6 * size}, "The first kernel writes no picture, only two numbers a plane: leave those out."),
                (
                    {"apart": 2 * size},
                    "Only one kernel can do with that: count what each of the three reads and writes.",
                ),
                ({"fused": size}, "A kernel reads its input and writes its result: both move."),
                ({"fused": 3 * size}, "At the least, one kernel reads each number once and keeps it until it is used."),
                ({"fused": 4 * size}, "h never has to be in memory: the one kernel passes it on."),
                ({"times_faster": 0.4}, "That is below 1: divide the bytes apart by those of the one kernel."),
                ({"fused_us": fused_us / 1e6}, "Those are seconds: a second has 1e6 microseconds."),
                ({"fused_us": 2.5 * fused_us}, "That is the time of the three kernels: take the bytes of the one."),
            ],
            "Write down for each of the three kernels what it reads and what it writes.",
            f"{values} values of {itemsize} bytes, {bytes_per_s:.4g} bytes/s",
        )


@exercise()
def add(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, out, n, BLOCK)`` on lengths that are no multiples of a block."""
    usual = [(1000, 256), (256, 256), (5, 8)]
    for n, block in cases(usual, lambda random: (random.randrange(100, 999), 2 ** random.randrange(4, 8))):
        torch.manual_seed(drawn(0, a_seed))
        x, y, out = torch.rand(n), torch.rand(n), torch.full((n,), EMPTY)
        programs = -(-n // block)
        where = f"n = {n}, BLOCK = {block}"
        _run(answer, programs, x, y, out, n, BLOCK=block, where=where)
        right = x + y
        first, short = right.clone(), right.clone()
        first[block:], short[-1] = EMPTY, EMPTY
        expect(
            out,
            right,
            [
                (torch.full((n,), EMPTY), "Nothing is written: tl.store(out + i, ..., mask=...)."),
                (first, "Only the first block is done: program p begins at place p * BLOCK."),
                (short, "The last number is missing: the places are 0 to n - 1, so those below n count."),
                (
                    lambda got, right: bool(got.eq(EMPTY).any()),
                    "Some places are left out: program p does the "
                    "places from p * BLOCK on, BLOCK of them, as far as there are any.",
                ),
                (x, "That is x alone: load y, too."),
            ],
            "Each number of out is the sum of those of x and y at the same place.",
            where,
        )


def _planes() -> Iterator[tuple[str, Tensor, int, Tensor, Tensor]]:
    """The case in words, four planes in float64, the size of the blocks they are done in, their means and variances."""
    torch.manual_seed(drawn(0, a_seed))
    height, width = drawn((5, 7), lambda random: (random.randrange(3, 9), random.randrange(3, 9)))
    for words, block in (("planes smaller than a block", 128), ("planes larger than a block", 8)):
        x = torch.randn(2, 2, height, width, dtype=torch.float64) + 0.5
        yield f"{words}, n = {height * width}, BLOCK = {block}", x, block, *_mean_and_variance(x)


def _mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((2, 3), keepdim=True), x.var((2, 3), correction=0, keepdim=True)


def _first_blocks(right: Tensor, block: int) -> Tensor:
    """The result if only the first block of each plane is written."""
    places = torch.arange(right[0, 0].numel()).view(right.shape[2:])
    return torch.where(places < block, right, EMPTY)


@exercise()
def norm_relu(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, mean, rstd, n, eps, BLOCK)``, one program for each plane."""

    def run(x: Tensor, block: int, where: str) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, rstd = torch.full_like(x, EMPTY), *torch.full((2, 4), EMPTY, dtype=x.dtype)
        _run(answer, 4, x, y, mean, rstd, x[0, 0].numel(), 1e-5, BLOCK=block, where=where)
        return y, mean, rstd

    def normed(x: Tensor, m: Tensor, variance: Tensor) -> Tensor:
        return ((x - m) / (variance + 1e-5).sqrt()).relu()

    for where, x, block, m, variance in _planes():
        y, mean, rstd = run(x, block, where)
        n, deviation = x[0, 0].numel(), (variance + 1e-5).sqrt()
        places = -(-n // block) * block  # of all blocks, masked ones as well
        small_m = m * n / places
        right = normed(x, m, variance)
        one_plane = torch.full_like(x, EMPTY)
        one_plane[0, 0] = right[0, 0]
        expect(
            y,
            right,
            [
                (torch.full_like(x, EMPTY), "Nothing is written to y."),
                ((x - m) / deviation, "That is the norm without ReLU: no number of y is below 0."),
                (-normed(-x, -m, variance), "ReLU keeps the positive numbers: the larger of h and 0."),
                (((x - m) * deviation).relu(), "It multiplies by the deviation: r is 1 / deviation."),
                (((x - m) / (variance + 1e-5)).relu(), "It divides by the variance: the square root is missing."),
                ((x - m).relu(), "The mean is subtracted, but nothing is divided by the deviation."),
                (
                    normed(x, m, variance + (places - n) / n * m**2),
                    "Places behind the end count in the variance, where x was loaded as 0 and the distance is -m. Set "
                    "it to 0 there: tl.where(i < n, ..., 0.0).",
                ),
                (normed(x, m, variance * n / (n - 1)), "Divide the squares by n: n - 1 is for estimates from samples."),
                (normed(x, small_m, variance + (m - small_m) ** 2), "The mean is too small: divide the sum by n."),
                (
                    _first_blocks(right, block),
                    "Only the first block of each plane is written: the last pass goes over all blocks, too.",
                ),
                (one_plane, "All programs do the first plane: plane p begins at x + p * n."),
                (
                    lambda got, right: bool(got.isnan().any()),
                    "There is NaN in y: a masked load has no number there. Give it one: other=0.0.",
                ),
            ],
            "Mean, variance and result are three passes over the plane's blocks: print each for a small plane.",
            where,
        )
        require_each(
            (torch.allclose(mean, m.view(-1)), "mean is not: store the mean of each plane, for the backward pass."),
            (torch.allclose(rstd, 1 / deviation.view(-1)), "rstd is not: store 1 / deviation, as you used it."),
            where=f"{where}: y is right, but ",
        )
    far = torch.randn(2, 2, 16, 16) + 1000
    y, *_ = run(far, 64, "a mean of 1,000 in float32")
    require(
        bool((y - normed(far, *_mean_and_variance(far.double()))).abs().max() < 1e-3),
        "a mean of 1,000 in float32: the numbers cancel. Two sums near 1,000,000 leave few digits of their difference: "
        "sum up (x - m) * (x - m) in a second pass.",
    )


@exercise()
def norm_relu_backward(answer: Callable) -> None:
    """Runs the kernel ``answer(x, dy, dx, mean, rstd, n, BLOCK)``, and compares dx with autograd's gradient."""
    for where, x, block, m, variance in _planes():
        n, r = x[0, 0].numel(), (variance + 1e-5).rsqrt()
        dy, dx = torch.randn_like(x) + 0.3, torch.full_like(x, EMPTY)
        _run(answer, 4, x, dy, dx, m.flatten().clone(), r.flatten().clone(), n, BLOCK=block, where=where)
        h = (x - m) * r
        x.requires_grad_()
        (right,) = torch.autograd.grad(F.instance_norm(x, eps=1e-5).relu(), x, dy)
        (no_relu,) = torch.autograd.grad(F.instance_norm(x, eps=1e-5), x, dy)
        x = x.detach()
        g = torch.where(h > 0, dy, 0)

        def mean_of(values: Tensor) -> Tensor:
            return values.mean((2, 3), keepdim=True)

        a, b = mean_of(g), mean_of(g * h)
        expect(
            dx,
            right,
            [
                (torch.full_like(x, EMPTY), "Nothing is written to dx."),
                (no_relu, "That is the gradient without ReLU: where h is not positive, nothing comes back, so g is 0."),
                (r * g, "That takes mean and deviation for constants: both depend on every x of the plane."),
                (r * (g - a), "That is right for the mean; the deviation depends on x, too: subtract h * mean(g * h)."),
                (r * (g - h * b), "The mean depends on x, too: subtract the mean of g."),
                (g - a - h * b, "The factor r is missing: h is (x - m) * r."),
                ((g - a - h * b) / r, "It divides by r, which is 1 / deviation already: multiply."),
                (r * (g - a - mean_of(g * x) * h), "The second sum is over g * h, not g * x."),
                (
                    r * (g - a - b),
                    "The second mean counts times h: a pixel far from the mean moves the deviation more.",
                ),
                (r * (g + a + h * b), "Both means are subtracted: the norm takes away what all pixels have in common."),
                (r * (g - n * a - h * n * b), "Those are sums: divide both by n."),
                (
                    r * (g - mean_of(dy) - h * mean_of(dy * h)),
                    "ReLU's mask belongs into the sums, too: sum up g, not dy.",
                ),
                (r * (dy - a - h * b), "ReLU's mask is in the sums only: the last line takes g, too, not dy."),
                (
                    _first_blocks(right, block),
                    "Only the first block is written: the second pass goes over all blocks, too.",
                ),
            ],
            "Compare with the text: g, two means, and r * (g - mean(g) - h * mean(g * h)).",
            where,
        )


Access = tuple[int, str, str]  # a program, a place, and "load", "store" or "atomic"


def _raced(accesses: list[Access], clash: Callable[[set[str]], bool], one_program: bool = False) -> str:
    """The places on which the kinds of two accesses clash, of two programs, or of one program as well."""
    pairs = itertools.product(accesses, accesses)
    met = [(one, other) for one, other in pairs if one[1] == other[1] and (one_program or one[0] != other[0])]
    return ", ".join(sorted({one[1] for one, other in met if clash({one[2], other[2]})}))


def _clash(kinds: set[str]) -> bool:
    """Whether two programs' accesses of these kinds race."""
    return kinds not in ({"load"}, {"atomic"})


NO_CLASHES: list[tuple[Callable[[set[str]], bool], str]] = [  # wrong rules, and what they overlook
    (lambda kinds: kinds != {"atomic"}, "Programs that only load leave the place as it is: that is no race."),
    (lambda kinds: kinds != {"load"}, "Atomic additions wait for each other: two of them are no race."),
    (
        lambda kinds: "store" in kinds,
        "An atomic addition writes: a plain load of another program finds the number before or after it.",
    ),
    (lambda kinds: kinds == {"store"}, "A load races as well, with a store of another program: which comes first?"),
]
IN_ORDER = "One program does its loads and stores in order: a race needs two programs."
CASES = [
    [(0, "s[0]", "store"), (1, "s[0]", "store"), (1, "s[1]", "store")],
    [(0, "x[0]", "load"), (1, "x[0]", "load"), (0, "y[0]", "store"), (1, "y[1]", "store")],
    [(0, "s[0]", "load"), (0, "s[0]", "store"), (1, "s[1]", "load"), (1, "s[1]", "store")],
    [(0, "s[0]", "atomic"), (1, "s[0]", "atomic"), (1, "s[1]", "load")],
    [(0, "x[1]", "load"), (1, "x[1]", "store"), (0, "x[0]", "load")],
    [(0, "s[0]", "atomic"), (1, "s[0]", "load"), (2, "s[2]", "store"), (2, "s[2]", "load")],
    [(2, "s[5]", "store"), (0, "s[4]", "load"), (0, "s[5]", "load"), (1, "s[4]", "load")],
]


def _other_accesses(random: Random) -> list[Access]:
    def access() -> Access:
        kind = random.choice(["load", "load", "store", "atomic"])
        return random.randrange(4), f"s[{random.randrange(4)}]", kind

    return [access() for _ in range(random.randrange(3, 9))]


@exercise()
def races(answer: Callable[[list[Access]], set[str]]) -> None:
    """Compares ``answer(accesses)`` with the places on which programs race."""
    for accesses in cases(CASES, _other_accesses):
        got = answer(list(accesses))
        require(isinstance(got, set), f"a set of places is expected, not a {type(got).__name__}.")
        mistakes = [(_raced(accesses, rule), message) for rule, message in NO_CLASHES]
        expect(
            ", ".join(sorted(got)),
            _raced(accesses, _clash),
            [*mistakes, (_raced(accesses, _clash, one_program=True), IN_ORDER)],
            "A race is one place, two programs, and at least one of them writes, other than both atomically.",
            f"accesses {accesses}",
        )
