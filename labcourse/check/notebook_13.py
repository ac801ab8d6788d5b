"""Checks of notebook 13: the bytes of a norm, a masked kernel, instance norm and ReLU in one, its gradient, races."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from labcourse.blocks import OutOfBounds, launch
from labcourse.check.answers import Mistakes, WrongAnswer, cases, drawn, exercise, expect, formula, require

EMPTY = -777.0  # in results, before a kernel has written them


def _run(answer: Callable, programs: int, out: Tensor, *arguments: Any, where: str, **constants: Any) -> None:
    """Launches an answer's kernel, which has to fill `out`, and explains a use of memory that is not there."""
    try:
        launch(answer, programs, *arguments, **constants)
    except OutOfBounds as error:
        told = f"{where}: {error}. The last block goes beyond the last number: {error.kind} only where i < n."
        raise WrongAnswer(told) from error
    empty = torch.nonzero(out.flatten() == EMPTY).flatten().tolist()
    if empty:
        left_out = f"{len(empty)} of {out.numel()} places of the result are left out, the first is {empty[0]}."
        raise WrongAnswer(f"{where}: {left_out} Which places does a program handle, and in how many blocks?")
    none = f"{where}: there is NaN in the result: a masked load has no number there. Give it one: other=0.0."
    require(not bool(out.isnan().any()), none)


def _right_traffic(values: int, itemsize: int, bytes_per_s: float) -> dict[str, float]:
    size = values * itemsize
    return {"apart": 5 * size, "fused": 2 * size, "times_faster": 2.5, "fused_us": 1e6 * 2 * size / bytes_per_s}


@formula(
    _right_traffic,
    [(1_048_576, 4, 1.555e12), (16_777_216, 2, 3.35e12)],
    lambda random: (random.randrange(1, 10**7), random.choice([2, 4, 8]), random.uniform(1e11, 5e12)),
)
def traffic(values: int, itemsize: int, bytes_per_s: float) -> Mistakes:
    """Compares ``answer(values, itemsize, bytes_per_s)`` with the bytes that three kernels and one have to move."""
    size = values * itemsize
    us = 1e6 * 2 * size / bytes_per_s
    yield {"apart": 5 * values}, "Those are numbers, not bytes: each takes `itemsize` bytes."
    yield {"apart": 3 * size}, "That is what the three kernels read. What they write has to move, too."
    yield {"apart": 4 * size}, "The norm reads its input twice: for the mean and variance, and to normalise."
    yield {"apart": 6 * size}, "The first kernel writes no picture, only two numbers a plane: leave those out."
    yield {"apart": 2 * size}, "Only one kernel can do with that: count what each of the three reads and writes."
    yield {"fused": size}, "A kernel reads its input and writes its result: both move."
    yield {"fused": 3 * size}, "At the least, one kernel reads each number once and keeps it until it is used."
    yield {"fused": 4 * size}, "h never has to be in memory: the one kernel passes it on."
    yield {"times_faster": 0.4}, "That is below 1: divide the bytes apart by those of the one kernel."
    yield {"fused_us": us / 1e6}, "Those are seconds: a second has 1e6 microseconds."
    yield {"fused_us": 2.5 * us}, "That is the time of the three kernels: take the bytes of the one."
    yield None, "Write down for each of the three kernels what it reads and what it writes."


@exercise()
def add(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, out, n, BLOCK)`` on lengths that are no multiples of a block."""
    usual = [(1000, 256), (256, 256), (5, 8)]
    for n, block in cases(usual, lambda random: (random.randrange(100, 999), 2 ** random.randrange(4, 8))):
        x, y, out = torch.rand(n), torch.rand(n), torch.full((n,), EMPTY)
        where = f"n = {n}, BLOCK = {block}"
        _run(answer, -(-n // block), out, x, y, out, n, BLOCK=block, where=where)
        expect(out, x + y, [(x, "That is x alone: load y, too.")], "Add the numbers at the same place.", where)


def _planes() -> Iterator[tuple[str, Tensor, int, Tensor, Tensor]]:
    """The case in words, four planes in float64, the size of the blocks they are done in, their means and variances."""
    height, width = drawn((5, 7), lambda random: (random.randrange(3, 9), random.randrange(3, 9)))
    for words, block in (("planes smaller than a block", 128), ("planes larger than a block", 8)):
        x = torch.randn(2, 2, height, width, dtype=torch.float64) + 0.5
        yield f"{words}, n = {height * width}, BLOCK = {block}", x, block, *_mean_and_variance(x)


def _mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((2, 3), keepdim=True), x.var((2, 3), correction=0, keepdim=True)


@exercise()
def norm_relu(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, mean, rstd, n, eps, BLOCK)``, one program for each plane."""

    def run(x: Tensor, block: int, where: str) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, rstd = torch.full_like(x, EMPTY), *torch.full((2, 4), EMPTY, dtype=x.dtype)
        _run(answer, 4, y, x, y, mean, rstd, x[0, 0].numel(), 1e-5, BLOCK=block, where=where)
        return y, mean, rstd

    def normed(x: Tensor, m: Tensor, variance: Tensor) -> Tensor:
        return ((x - m) / (variance + 1e-5).sqrt()).relu()

    for where, x, block, m, variance in _planes():
        y, mean, rstd = run(x, block, where)
        n, deviation = x[0, 0].numel(), (variance + 1e-5).sqrt()
        places = -(-n // block) * block  # of all blocks, masked ones as well
        small_m, behind = m * n / places, variance + (places - n) / n * m**2
        expect(
            y,
            normed(x, m, variance),
            [
                ((x - m) / deviation, "That is the norm without ReLU: no number of y is below 0."),
                (-normed(-x, -m, variance), "ReLU keeps the positive numbers: the larger of h and 0."),
                (((x - m) * deviation).relu(), "It multiplies by the deviation: r is 1 / deviation."),
                (((x - m) / (variance + 1e-5)).relu(), "It divides by the variance: the square root is missing."),
                ((x - m).relu(), "The mean is subtracted, but nothing is divided by the deviation."),
                (normed(x, m, behind), "Places beyond the end count in the variance: tl.where(i < n, ..., 0.0)."),
                (normed(x, m, variance * n / (n - 1)), "Divide the squares by n: n - 1 is for estimates from samples."),
                (normed(x, small_m, variance + (m - small_m) ** 2), "The mean is too small: divide the sum by n."),
            ],
            "Mean, variance and result are three passes over the plane's blocks: print each for a small plane.",
            where,
        )
        for name, got, right in (("mean", mean, m), ("rstd", rstd, 1 / deviation)):
            stored = f"{where}: y is right, but {name} is not: store the mean of each plane, and 1 / deviation."
            require(torch.allclose(got, right.view(-1)), stored)
    far = torch.randn(2, 2, 16, 16) + 1000
    y, *_ = run(far, 64, "a mean of 1,000 in float32")
    close = bool((y - normed(far, *_mean_and_variance(far.double()))).abs().max() < 1e-3)
    require(close, "a mean of 1,000 in float32: the numbers cancel. Sum up (x - m) * (x - m) in a second pass.")


@exercise()
def norm_relu_backward(answer: Callable) -> None:
    """Runs the kernel ``answer(x, dy, dx, mean, rstd, n, BLOCK)``, and compares dx with autograd's gradient."""
    for where, x, block, m, variance in _planes():
        n, r = x[0, 0].numel(), (variance + 1e-5).rsqrt()
        dy, dx = torch.randn_like(x) + 0.3, torch.full_like(x, EMPTY)
        _run(answer, 4, dx, x, dy, dx, m.flatten().clone(), r.flatten().clone(), n, BLOCK=block, where=where)
        x.requires_grad_()
        (right,) = torch.autograd.grad(F.instance_norm(x, eps=1e-5).relu(), x, dy)
        (no_relu,) = torch.autograd.grad(F.instance_norm(x, eps=1e-5), x, dy)
        x = x.detach()
        h = (x - m) * r
        g = torch.where(h > 0, dy, 0)
        a, b, a_of_dy, b_of_dy, of_x = (values.mean((2, 3), keepdim=True) for values in (g, g * h, dy, dy * h, g * x))
        expect(
            dx,
            right,
            [
                (no_relu, "That is the gradient without ReLU: where h is not positive, g is 0."),
                (r * g, "That treats mean and deviation as constants: both depend on every x of the plane."),
                (r * (g - a), "That is right for the mean. The deviation depends on x, too: subtract h * mean(g * h)."),
                (r * (g - h * b), "The mean depends on x, too: subtract the mean of g."),
                (g - a - h * b, "The factor r is missing: h is (x - m) * r."),
                ((g - a - h * b) / r, "It divides by r, which is 1 / deviation already: multiply."),
                (r * (g - a - of_x * h), "The second sum is over g * h, not g * x."),
                (r * (g - a - b), "The second mean counts times h: far pixels move the deviation more."),
                (r * (g + a + h * b), "Both means are subtracted: the norm takes away what all pixels have in common."),
                (r * (g - n * a - h * n * b), "Those are sums: divide both by n."),
                (r * (g - a_of_dy - h * b_of_dy), "ReLU's mask belongs in the sums, too: sum up g, not dy."),
                (r * (dy - a - h * b), "ReLU's mask is in the sums only: the last line takes g, too, not dy."),
            ],
            "Compare with the text: g, two means, and r * (g - mean(g) - h * mean(g * h)).",
            where,
        )


Access = tuple[int, str, str]  # a program, a place, and "load", "store" or "atomic"


def _raced(accesses: list[Access], clash: Callable[[set[str]], bool], programs: int = 2) -> set[str]:
    """The places on which the kinds of two accesses clash, of that many programs at least."""
    pairs = [(a, b) for a, b in itertools.product(accesses, accesses) if a[1] == b[1] and len({a[0], b[0]}) >= programs]
    return {a[1] for a, b in pairs if clash({a[2], b[2]})}


def _clash(kinds: set[str]) -> bool:
    """Whether two programs' accesses of these kinds race."""
    return kinds not in ({"load"}, {"atomic"})


def _other_accesses(random: Random) -> tuple[list[Access]]:
    kinds, number = ["load", "load", "store", "atomic"], random.randrange(3, 9)
    return ([(random.randrange(4), f"s[{random.randrange(4)}]", random.choice(kinds)) for _ in range(number)],)


@formula(
    lambda accesses: _raced(accesses, _clash),
    [
        ([(0, "s[0]", "store"), (1, "s[0]", "store"), (1, "s[1]", "store")],),
        ([(0, "x[0]", "load"), (1, "x[0]", "load"), (0, "y[0]", "store"), (1, "y[1]", "store")],),
        ([(0, "s[0]", "load"), (0, "s[0]", "store"), (1, "s[1]", "load"), (1, "s[1]", "store")],),
        ([(0, "s[0]", "atomic"), (1, "s[0]", "atomic"), (1, "s[1]", "load")],),
        ([(0, "x[1]", "load"), (1, "x[1]", "store"), (0, "x[0]", "load")],),
        ([(0, "s[0]", "atomic"), (1, "s[0]", "load"), (2, "s[2]", "store"), (2, "s[2]", "load")],),
    ],
    _other_accesses,
)
def races(accesses: list[Access]) -> Mistakes:
    """Compares ``answer(accesses)`` with the places on which programs race."""
    yield _raced(accesses, lambda kinds: kinds != {"atomic"}), "Loads alone leave the place as it is: that is no race."
    yield _raced(accesses, lambda kinds: kinds != {"load"}), "Atomic additions wait for each other: that is no race."
    yield _raced(accesses, lambda kinds: "store" in kinds), "An atomic addition writes: a plain load races with it."
    yield _raced(accesses, lambda kinds: kinds == {"store"}), "A load races as well, with a store of another program."
    yield _raced(accesses, _clash, programs=1), "One program works in order: a race needs two programs."
    yield None, "A race is one place, two programs, and at least one of them writes, other than both atomically."
