"""Checks of notebook 13.

The bytes of a norm, a masked kernel, instance norm and ReLU in one, its gradient, races, and a transform in C++.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from labcourse.blocks import launch
from labcourse.check.answers import WrongAnswer, cases, drawn, exercise, expect, guarded, require
from labcourse.check.formula import Mistakes, formula

EMPTY = -777.0  # in results, before a kernel has written them
Access = tuple[int, str, str]  # a program, a place, and "load", "store" or "atomic"


def _run(
    answer: Callable, programs: int, arguments: list[Any], where: str, **constants: Any
) -> tuple[list[Tensor], int]:
    """What an answer's kernel writes into the tensors that are `EMPTY`, and the most accesses of a program.

    It has to fill the first one, and to leave the others.

    Args:
        where: the launch in words.
    """
    tensors = [one for one in arguments if isinstance(one, Tensor)]
    written, inputs = ([one for one in tensors if bool((one == EMPTY).all()) == empty] for empty in (True, False))
    with guarded(answer, inputs, if_it_fails=f"The case is {where}."):
        run = launch(answer, programs, *arguments, **constants)
    written_by = dict.fromkeys((one.place, one.program) for one in run.accesses if one.kind != "load")
    writers = Counter(place for place, _ in written_by)
    shared = [place for place, number in writers.items() if number > 1]
    most = max(Counter(one.program for one in run.accesses).values(), default=0)
    empty = torch.nonzero(written[0].flatten() == EMPTY).flatten().tolist()
    left_out = f"{len(empty)} of {written[0].numel()} places of the result are left out, the first is {[*empty, 0][0]}."
    require(not empty, f"{where}: {left_out} Which places does a program handle, and in how many blocks?")
    none = "NaN comes from a masked load without other=0.0, from 0 / 0, and from roots of numbers below 0."
    require(not bool(written[0].isnan().any()), f"{where}: there is NaN in the result. {none}")
    require(not shared, f"{where}: several programs write to {', '.join(shared[:3])}: each has places of its own.")
    return written, most


def _worst(got: Tensor, right: Tensor, where: str) -> str:
    """`where`, and the number of a kernel's result that is farthest off."""
    place = int((got - right).abs().argmax())
    numbers = [f"{one.flatten()[place].item():.4g}" for one in (got, right)]
    return f"{where}, place {place} of the result is {numbers[0]} and should be {numbers[1]}"


def _right_traffic(values: int, itemsize: int, bytes_per_s: float) -> dict[str, float]:
    size = values * itemsize
    return {"apart": 5 * size, "fused": 2 * size, "times_faster": 2.5, "fused_us": 1e6 * 2 * size / bytes_per_s}


@formula(
    _right_traffic,
    [(1_048_576, 4, 1.555e12)],
    lambda random: (random.randrange(1, 10**7), random.choice([2, 4, 8]), random.uniform(1e11, 5e12)),
)
def traffic(values: int, itemsize: int, bytes_per_s: float) -> Mistakes:
    """Compares ``answer(values, itemsize, bytes_per_s)`` with the bytes that three kernels and one have to move."""
    size = values * itemsize
    us = 1e6 * 2 * size / bytes_per_s
    yield {"fused": 8 * values}, "A number takes `itemsize` bytes, not always 4."
    yield {"fused_us": us / 1e3}, "Those are milliseconds: a millisecond has 1e3 microseconds."
    yield {"apart": 5 * values}, "Those are numbers, not bytes: each takes `itemsize` bytes."
    yield {"apart": 3 * size}, "That is what the three kernels read. What they write has to move, too."
    yield {"apart": 4 * size}, "The norm reads its input twice: for the mean and variance, and to normalise."
    yield {"apart": 6 * size}, "The first kernel writes no picture, only two numbers a plane: leave those out."
    yield {"apart": 2 * size}, "Only one kernel can do with that: count what each of the three reads and writes."
    yield {"fused": size}, "A kernel reads its input and writes its result: both move."
    yield {"fused": 3 * size}, "At the least, one kernel reads each number once and keeps it until it is used."
    yield {"fused": 4 * size}, "h never has to be in memory: the one kernel passes it on."
    yield {"times_faster": 2.0}, "The bound need not be a whole number: divide with /."
    yield {"times_faster": 0.4}, "That is below 1: divide the bytes apart by those of the one kernel."
    yield {"fused_us": us / 1e6}, "Those are seconds: a second has 1e6 microseconds."
    yield {"fused_us": 2.5 * us}, "That is the time of the three kernels: take the bytes of the one."
    yield None, "Write down for each of the three kernels what it reads and what it writes."


@exercise()
def add(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, out, n, BLOCK)`` on lengths that are multiples of a block, or are not."""
    block, more = drawn((256, 232), lambda random: (size := 2 ** random.randrange(3, 7), random.randrange(2, size)))
    for n in (3 * block + more, 2 * block, more, 1):
        x, y = torch.randn(2, n)
        where = f"n = {n}, BLOCK = {block}"
        (out,), most = _run(answer, -(-n // block), [x, y, torch.full((n,), EMPTY), n], where, BLOCK=block)
        add_both = "Add the numbers at the same place."
        expect(out, x + y, [(x, "That is x alone: load y, too.")], add_both, _worst(out, x + y, where))
        told = f"{where}: a program loads and stores {most} numbers. Its block has BLOCK places, and x, y and out."
        require(most <= 3 * block, told)


def _planes() -> Iterator[tuple[str, Tensor, int, Tensor, Tensor]]:
    """The case in words, planes in float64, the size of the blocks they are done in, their variances and means."""
    height, width = drawn([5, 7], lambda random: random.choices([3, 5, 7, 9], k=2))
    for words, wide, block, contrast in (
        ("planes smaller than a block", width, 128, 1),
        ("planes larger than a block", width, 8, 1),
        ("nearly flat planes in whole blocks", 8, 8, 1e-3),
    ):
        x = contrast * torch.randn(3, 2, height, wide, dtype=torch.float64) + 0.5
        x[0, 1] = x[0, 1] if contrast == 1 else 0.5  # one is quite flat
        where = f"{words}, n = {height * wide}, BLOCK = {block}"
        yield where, x, block, *torch.var_mean(x, (2, 3), correction=0, keepdim=True)


@exercise()
def norm_relu(answer: Callable) -> None:
    """Runs the kernel ``answer(x, y, mean, rstd, n, eps, BLOCK)``, one program for each plane."""
    eps = drawn(1e-5, lambda random: random.uniform(1e-4, 1e-3))

    def run(x: Tensor, block: int, where: str) -> list[Tensor]:
        empty = [torch.full_like(x, EMPTY), *torch.full((2, 6), EMPTY, dtype=x.dtype)]
        return _run(answer, 6, [x, *empty, x[0, 0].numel(), eps], where, BLOCK=block)[0]

    def normed(x: Tensor, m: Tensor, variance: Tensor) -> Tensor:
        return ((x - m) / (variance + eps).sqrt()).relu()

    for where, x, block, variance, m in _planes():
        y, mean, rstd = run(x, block, where)
        n, deviation = x[0, 0].numel(), (variance + eps).sqrt()
        places = -(-n // block) * block  # of all blocks, masked ones as well
        small_m, behind = m * n / places, variance + (places - n) / n * m**2
        expect(
            y,
            normed(x, m, variance),
            [
                ((x - m) / deviation, "That is the norm without ReLU: no number of y is below 0."),
                (-normed(-x, -m, variance), "ReLU keeps the positive numbers: the larger of h and 0."),
                (((x - m) * deviation).relu(), "It multiplies by the deviation: r is 1 / deviation."),
                (((x - m) / (variance + eps)).relu(), "It divides by the variance: the square root is missing."),
                (((x - m) / (variance.sqrt() + eps)).relu(), "eps belongs under the root: 1 / sqrt(variance + eps)."),
                ((x - m).relu(), "The mean is subtracted, but nothing is divided by the deviation."),
                (normed(x, m, behind), "Places beyond the end count in the variance: tl.where(i < n, ..., 0.0)."),
                (normed(x, m, variance * n / (n - 1)), "Divide the squares by n: n - 1 is for estimates from samples."),
                (normed(x, small_m, variance + (m - small_m) ** 2), "The mean is too small: divide the sum by n."),
            ],
            "Mean, variance and result are three passes over the plane's blocks: print each for a small plane.",
            _worst(y, normed(x, m, variance), where),
        )
        for name, got, right in (("mean", mean, m), ("rstd", rstd, 1 / deviation)):
            stored = f"{where}: y is right, but {name} is not: store the mean of each plane, and 1 / deviation."
            require(torch.allclose(got, right.view(-1)), stored)
    far = torch.randn(3, 2, 16, 16) + 1000
    y, *_ = run(far, 64, "a mean of 1,000 in float32")
    variance, m = torch.var_mean(far.double(), (2, 3), correction=0, keepdim=True)
    close = bool((y - normed(far, m, variance)).abs().max() < 1e-3)
    require(close, "a mean of 1,000 in float32: the numbers cancel. Sum up (x - m) * (x - m) in a second pass.")


@exercise()
def norm_relu_backward(answer: Callable) -> None:
    """Runs the kernel ``answer(x, dy, dx, mean, rstd, n, BLOCK)``, and compares dx with the gradient."""
    eps = drawn(1e-3, lambda random: random.uniform(1e-4, 1e-2))
    for where, x, block, variance, m in _planes():
        n, r = x[0, 0].numel(), (variance + eps).rsqrt()
        dy, empty = torch.randn_like(x) + 0.3, torch.full_like(x, EMPTY)
        (dx,), _ = _run(answer, 6, [x, dy, empty, m.flatten(), r.flatten(), n], where, BLOCK=block)
        h = (x - m) * r
        g = torch.where(h > 0, dy, 0)
        a, b, a_of_dy, b_of_dy, of_x = (values.mean((2, 3), keepdim=True) for values in (g, g * h, dy, dy * h, g * x))
        right = r * (g - a - h * b)
        of_x_mask = (g_x := torch.where(x > 0, dy, 0)) - g_x.mean((2, 3), keepdim=True)
        of_x_mask = r * (of_x_mask - h * (g_x * h).mean((2, 3), keepdim=True))
        expect(
            dx,
            right,
            [
                (r * (dy - a_of_dy - h * b_of_dy), "That is the gradient without ReLU: g is 0 where h <= 0."),
                (of_x_mask, "ReLU sees h, so dy comes through where h > 0, not where x > 0."),
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
            "g is dy where h > 0. Add up the three ways: each is r times something, and two are means over all n.",
            _worst(dx, right, where),
        )


def _clash(kinds: set[str]) -> bool:
    """Whether two programs' accesses of these kinds race."""
    return kinds not in ({"load"}, {"atomic"})


def _raced(accesses: list[Access], clash: Callable[[set[str]], bool] = _clash, least: int = 2) -> set[str]:
    """The places on which the kinds of two accesses clash, of that many programs at least."""
    of_places = itertools.groupby(sorted(accesses, key=lambda one: one[1]), key=lambda one: one[1])
    pairs = [(place, *pair) for place, same in of_places for pair in itertools.product([*same], repeat=2)]
    return {place for place, a, b in pairs if len({a[0], b[0]}) >= least and clash({a[2], b[2]})}


def _other_accesses(random: Random) -> tuple[list[Access]]:
    """Of all kinds three accesses to a place: two by one program and one by another or the same, between others."""
    accesses = []
    for place, kinds in enumerate(2 * [*itertools.product(["load", "store", "atomic"], repeat=3)]):
        first, last = random.sample(range(9), 2)
        programs = first, first, last if place < 27 else first
        times = sorted(random.random() for _ in kinds)
        name = f"{'sx'[place % 2]}[{place // 2}]"
        accesses += [(*one, name) for one in zip(times, programs, kinds, strict=True)]
    return ([(who, name, kind) for _, who, kind, name in sorted(accesses)],)


@formula(
    _raced,
    [
        ([(0, "x[0]", "load"), (1, "x[0]", "load"), (0, "y[0]", "store"), (2, "y[0]", "store"), (2, "y[1]", "store")],),
        ([(0, "s[0]", "load"), (0, "s[0]", "store"), (1, "s[1]", "load"), (1, "s[1]", "store")],),
        ([(2, "x[1]", "load"), (0, "x[1]", "load"), (0, "x[0]", "load"), (2, "x[1]", "store"), (2, "x[1]", "load")],),
        ([(0, "s[0]", "atomic"), (1, "s[0]", "atomic"), (1, "s[1]", "load"), (2, "s[1]", "atomic")],),
    ],
    _other_accesses,
)
def races(accesses: list[Access]) -> Mistakes:
    """Compares ``answer(accesses)`` with the places on which programs race."""
    yield _raced(accesses, lambda kinds: kinds != {"atomic"}), "Loads alone leave the place as it is: that is no race."
    yield _raced(accesses, lambda kinds: kinds != {"load"}), "Atomic additions wait for each other: that is no race."
    yield _raced(accesses, lambda kinds: "store" in kinds), "An atomic addition writes: a plain load races with it."
    yield _raced(accesses, lambda kinds: kinds == {"store"}), "A load races as well, with a store of another program."
    yield _raced(accesses, least=1), "One program works in order: a race needs two programs."
    yield None, "A race is one place, two programs, and at least one of them writes, other than both atomically."


B_T = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]  # Lavin and Gray 2016, section 4.1
B_T += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
ARITHMETIC = ast.Module | ast.Expr | ast.Assign | ast.AugAssign | ast.Name | ast.Subscript | ast.Constant | ast.BinOp
ARITHMETIC |= ast.UnaryOp | ast.Add | ast.Sub | ast.Mult | ast.USub | ast.UAdd | ast.Load | ast.Store
DECLARES = r"\b(?:const )?(?:Lanes|float|auto) ([^;]*)"


def _do(lines: str, names: dict[str, Any]) -> None:
    """Does what lines of C++ say that declare, add, subtract and multiply only: without types they are Python, too."""
    text = " ".join(re.sub(r"//.*|/\*[\s\S]*?\*/", " ", lines).split())
    text = re.sub(r"(\d\.\d*|\.\d+)[fF]\b", r"\1", text)
    names |= {one.split("=")[0].strip(): None for found in re.findall(DECLARES, text) for one in found.split(",")}
    *statements, rest = re.sub(DECLARES, r"\1", text).replace(",", ";").split(";")
    require(not rest.strip(), f"`{rest.strip():.200}`: in C++ a semicolon ends each statement.")
    for one in map(str.strip, statements):
        try:
            tree = ast.parse(one)
        except SyntaxError as error:
            told = f"`{one:.200}` is not understood: is a semicolon missing, or an operator?"
            raise WrongAnswer(told) from error
        for node in ast.walk(tree):
            simple = isinstance(node, ARITHMETIC)
            if isinstance(node, ast.Constant) and (simple := type(node.value) in (int, float)):
                node.value = float(node.value)  # type: ignore[arg-type]  # products of integers may grow forever
            require(simple, f"`{one:.200}`: only +, - and * are needed, of numbers, d[0] to d[5] and names.")
            known = not isinstance(node, ast.Name) or node.id in names
            require(known, f"`{one:.200}`: {getattr(node, 'id', '')} is not a name of this kernel.")
        try:
            exec(compile(tree, "kernel", "exec"), {"__builtins__": {}}, names)
        except TypeError as error:
            raise WrongAnswer(f"`{one:.200}`: d is given and const: the sums go into v[0] to v[5].") from error


PIXEL = "((4 * row + i) * width + 4 * column + j) * channels + k"
OTHER_PIXELS = {
    "(4 * row + i * width + 4 * column + j) * channels + k": "Put 4 * row + i into parentheses: all of it is rows.",
    "(4 * row + i) * width + (4 * column + j) * channels + k": "A row has width * channels numbers, and not width.",
    "((6 * row + i) * width + 6 * column + j) * channels + k": "Tiles begin 4 pixels apart: they overlap by 2.",
    "((row + i) * width + column + j) * channels + k": "Tiles begin 4 pixels apart, not 1.",
    "(4 * row + i) * width + 4 * column + j + k": "Each pixel has `channels` numbers, side by side.",
    "((4 * row + i) * width + 4 * column + j) * channels": "That is channel 0: go on to channel k.",
    "((4 * row + j) * width + 4 * column + i) * channels + k": "i counts rows of pixels in the tile, j columns.",
    "((4 * column + i) * width + 4 * row + j) * channels + k": "The tile's row counts pixels down.",
    "((4 * column + j) * width + 4 * row + i) * channels + k": "Rows lie `width` pixels apart, columns one.",
    "(4 * row * width + 4 * column) * channels + k": "That is the tile's first pixel: go on to pixel (i, j).",
}


@exercise()
def input_transform(pixel: str, transform: str) -> None:
    """Compares the place of a pixel and the six sums, written in C++, with those of `labkit`'s input transform."""
    require(";" not in pixel, "PIXEL is one expression, without a semicolon.")
    given = [dict(row=1, column=2, i=3, j=4, k=5, width=18, channels=32)]
    ranges = dict(row=(1, 9), column=(1, 9), i=(1, 6), j=(1, 6), k=(1, 16), width=(50, 90), channels=(16, 64))
    for case in cases(given, lambda random: {name: random.randrange(*ends) for name, ends in ranges.items()}):
        names: dict[str, Any] = {**case, "at": None}
        _do(f"at = {pixel};", names)
        expect(
            names["at"],
            eval(PIXEL, {}, case),
            [(eval(other, {}, case), message) for other, message in OTHER_PIXELS.items()],
            "Which row of the picture is it, which column? A row has width pixels, a pixel has channels numbers.",
            f"PIXEL with {', '.join(f'{name} {value}' for name, value in case.items())}",
        )
    d = [*drawn([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], lambda random: [random.uniform(-9, 9) for _ in range(6)])]
    v: dict[int, Any] = dict.fromkeys(range(6))
    _do(transform, {"d": MappingProxyType(dict(enumerate(d))), "v": v})

    def times(matrix: Any) -> dict[str, float]:
        return {f"v[{i}]": sum(a * b for a, b in zip(row, d, strict=True)) for i, row in enumerate(matrix)}

    missing = [f"v[{i}]" for i in range(6) if v[i] is None]
    require(not missing, f"TRANSFORM: {', '.join(missing)} has no value yet: there are six sums.")
    squeezed = [[one for one in row if one] + [0] * row.count(0) for row in B_T]
    expect(
        {f"v[{i}]": value for i, value in v.items()},
        times(B_T),
        [
            (times(zip(*B_T, strict=True)), "Those are the columns of the matrix: v[i] takes its row i."),
            (times(squeezed), "Zeros keep their place: the third number of a row belongs to d[2]."),
            (times([[abs(one) for one in row] for row in B_T]), "All signs are plus: some numbers are below 0."),
        ],
        "v[i] is the sum over j of the number in row i and column j times d[j].",
        f"TRANSFORM with d = {', '.join(f'{one:g}' for one in d)}",
    )


@formula(
    lambda direct, products, transforms: 1 / (direct / products / 4 + transforms),
    [(250e9, 105e9, 0.2), (1e11, 1e11, 0.0)],
    lambda random: (random.uniform(1e10, 3e11), random.uniform(1e10, 3e11), random.uniform(0.05, 0.4)),
)
def winograd_gain(direct_rate: float, products_rate: float, transforms: float) -> Mistakes:
    """Compares ``answer(direct_rate, products_rate, transforms)`` with the gain by two rates and the transforms."""
    slower = direct_rate / products_rate
    yield 4 / slower, "The transforms take time, too: they come on top of the products."
    yield 1 / (0.25 + transforms), "A quarter of the multiplications is a quarter of the time only at the same rate."
    yield 1 / (0.25 / slower + transforms), "Slower products take longer: divide multiplications by their rate."
    yield slower / 4 + transforms, "That is the time, as a share of the direct convolution's: the gain is 1 / it."
    yield 4 / slower - transforms, "Times add up, gains do not: add the shares of time first."
    yield transforms and 1 / transforms, "The products take time, too: 36 / 144 is a quarter, and 36 // 144 is 0."
    of_products = 4 / slower / (1 + transforms)
    yield of_products, "The transforms' share is of the direct convolution's time, and not of the products'."
    yield 1 / (slower + transforms), "The products have 36 multiplications where the direct convolution has 144."
    yield None, "Take the direct convolution's time as 1: what share of it do products take, what the transforms?"
