"""The kernels of `nhwc` alone: whether they are right on this GPU, and how fast; and a step's convolutions.

What is right is what PyTorch's operators compute in float64 on the processor.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.authoring.plan import Item
from benchmarks.authoring.stacks import Found
from labkit.variants import nhwc_norm
from labkit.variants.nhwc import channels_as_columns, columns_as_channels, norm

BF16, FLOAT32, LAST = torch.bfloat16, torch.float32, torch.channels_last
# How far a result may be off: ||difference|| / ||right||, and the largest difference over the largest right value,
# which sees a corner, or a single pixel, that is left out.
LIMITS = {BF16: (5e-3, 2e-2), FLOAT32: (1e-5, 1e-4)}
NEAR_ZERO = 1e-4  # of a norm: there rounding decides whether an activation lets its gradient pass
# Norms: type, pictures, channels, height, width, padding, slope, whether there is a skip. The layers of a step at
# batch 16 and 1, and odd sizes.
CASES = (
    (BF16, 32, 256, 64, 64, 1, 0.0, False),
    (BF16, 32, 256, 64, 64, 1, 0.0, True),
    (BF16, 2, 256, 64, 64, 1, 0.0, True),
    (BF16, 2, 64, 256, 256, 3, 0.0, False),
    (BF16, 4, 128, 128, 128, 0, 0.0, False),
    (BF16, 32, 512, 31, 31, 0, 0.2, False),
    (BF16, 3, 70, 9, 11, 3, 0.0, True),
    (FLOAT32, 3, 70, 9, 11, 3, 0.2, False),
)

TILES = ((64, 4), (64, 8), (32, 4), (128, 8))  # pixels, warps: the first is the variant's own
# Of pictures of 256 x 256 pixels. Norms: channels, height, width, padding.
NORMS = {"residual": (256, 64, 64, 1), "last up": (64, 256, 256, 3), "down": (128, 128, 128, 0)}
# Convolutions: channels in and out, kernel, stride, padding, whether transposed, height and width of what comes in.
CONVOLUTIONS = {
    "residual": (256, 256, (3, 3), 1, 0, False, 66, 66),
    "down 1": (64, 128, (3, 3), 2, 1, False, 256, 256),
    "down 2": (128, 256, (3, 3), 2, 1, False, 128, 128),
    "up 1": (256, 128, (3, 3), 2, 1, True, 64, 64),
    "up 2": (128, 64, (3, 3), 2, 1, True, 128, 128),
    "first, 7x1": (24, 64, (7, 1), 1, 0, False, 262, 256),
    "last, 7x1": (64, 24, (7, 1), 1, 0, False, 262, 262),
    "discriminator 2": (64, 128, (4, 4), 2, 1, False, 128, 128),
    "discriminator 4": (256, 512, (4, 4), 1, 1, False, 32, 32),
    "first, 7x7": (3, 64, (7, 7), 1, 0, False, 262, 262),
    "last, 7x7": (64, 3, (7, 7), 1, 0, False, 262, 262),
}
WAYS = {"forward": None, "gradient of x": [True, False, False], "gradient of the weight": [False, True, False]}
REPLAYED_MS = 5  # of a graph with many calls

Layers = Callable[..., list[Tensor]]


# ---- are they right?


def right(item: Item, device: torch.device, out: Path) -> Found:
    """Every result and gradient of the kernels, in the types and layouts of a step: `ok` if all are within limits."""
    errors: dict[str, tuple[float, float]] = {}
    bad: list[str] = []
    factor = 1 if device.type == "cuda" else 2  # the interpreter cuts off what a GPU rounds
    for name, dtype, results in cases(item, device):
        for result, (mine, its) in results.items():
            apart = mine - its
            error = (apart.norm() / its.norm()).item(), (apart.abs().max() / its.abs().max()).item()
            errors[f"{name}: {result}"] = error
            if not all(value < factor * most for value, most in zip(error, LIMITS[dtype], strict=True)):
                bad.append(f"{name}: {result}")
        yield {"errors": errors, "bad": bad}, ""
    said = f"WRONG: {bad}" if bad else "all within limits"
    yield {"errors": errors, "bad": bad, "ok": not bad}, f"{len(errors)} results, {said}"


def cases(item: Item, device: torch.device) -> Iterator[tuple[str, torch.dtype, dict[str, tuple[Tensor, Tensor]]]]:
    """Norms with all that their kernels do besides, and the ends of the networks: each result and the right one."""
    random = torch.Generator().manual_seed(1)
    for given in CASES if device.type == "cuda" else CASES[-2:]:
        yield f"norm {given}", given[0], norm_results(random, device, *given)
    for columns, stride, pad, reflect in ((7, 1, 3, True), (4, 2, 1, False)):
        found = first_results(random, device, item.size, columns, stride, pad, reflect)
        yield f"{columns} columns as channels", BF16, found
    for columns, pad, channels, tanh in ((7, 0, 3, True), (4, 1, 1, False)):
        found = last_results(random, device, item.size, columns, pad, channels, tanh)
        yield f"channels as {columns} columns", BF16, found


def norm_results(random, device, dtype, n, c, h, w, pad, slope, has_skip):
    """Instance norm with activation or skip, and padding."""

    def drawn(margin: int, shift: float = 0.0) -> Tensor:
        made = torch.randn(n, c, h + margin, w + margin, generator=random) + shift
        return made.to(dtype).contiguous(memory_format=LAST)

    def kernels(x: Tensor, *whole: Tensor) -> list[Tensor]:
        skip = whole[0][:, :, 1:-1, 1:-1] if whole else None  # it lies as the inner part of a padded picture
        return list(norm(x, skip, slope, pad))[: 1 + len(whole)]

    def layers(x: Tensor, *whole: Tensor) -> list[Tensor]:
        inner = F.instance_norm(x)
        inner = inner + whole[0][:, :, 1:-1, 1:-1] if whole else F.leaky_relu(inner, slope)
        return [F.pad(inner, (pad,) * 4, mode="reflect") if pad else inner, inner][: 1 + len(whole)]

    inputs, gradients = [drawn(0, 2.0), drawn(2)][: 1 + has_skip], [drawn(2 * pad), drawn(0)][: 1 + has_skip]
    found = compared(kernels, layers, inputs, gradients, device)
    if not has_skip:
        sure = F.instance_norm(inputs[0].double()).abs() > NEAR_ZERO
        found[1] = (found[1][0] * sure, found[1][1] * sure)
    return dict(zip(("y", "inner", "d x", "d skip") if has_skip else ("y", "d x"), found, strict=True))


def first_results(random, device, size, columns, stride, pad, reflect):
    """Pictures, of which those columns lie side by side that a convolution covers."""

    def kernels(x: Tensor) -> list[Tensor]:
        return [columns_as_channels(x, BF16, columns, stride, pad, reflect)[:, : 3 * columns]]  # zeros come after them

    def layers(x: Tensor) -> list[Tensor]:
        padded = F.pad(x, (pad,) * 4, mode="reflect") if reflect else F.pad(x, (pad, pad))
        return [padded.unfold(3, columns, stride).permute(0, 4, 1, 2, 3).flatten(1, 2)]

    x = torch.randn(2, 3, size, size, generator=random)
    gradient = torch.randn(layers(x)[0].shape, generator=random).to(BF16)
    return dict(zip(("y", "d x"), compared(kernels, layers, [x], [gradient], device), strict=True))


def last_results(random, device, size, columns, pad, channels, tanh):
    """What a convolution made for each of its columns, added up."""

    def kernels(y: Tensor, bias: Tensor) -> list[Tensor]:
        return [channels_as_columns(y, bias, columns, pad, tanh)]

    def layers(y: Tensor, bias: Tensor) -> list[Tensor]:
        parts = F.pad(y, (pad, pad))[:, : columns * channels].unflatten(1, (columns, channels)).unbind(1)
        across = size + 2 * pad - columns + 1
        out = sum(part[..., k : k + across] for k, part in enumerate(parts)) + bias[:, None, None]
        return [out.tanh() if tanh else out]

    wide = 8 * -(-columns * channels // 8)
    y = (0.3 * torch.randn(2, wide, size, size, generator=random)).to(BF16).contiguous(memory_format=LAST)
    bias = torch.randn(channels, generator=random)
    gradient = torch.randn(layers(y, bias)[0].shape, generator=random)
    found = compared(kernels, layers, [y, bias], [gradient], device)
    return dict(zip(("out", "d y", "d bias"), found, strict=True))


def compared(mine: Layers, its: Layers, inputs: list[Tensor], gradients: list[Tensor], device: torch.device):
    """Results of two functions, then the gradients of their inputs: `mine` on the device, `its` in float64 here."""
    rows = []
    for function, place in ((mine, lambda one: one.to(device)), (its, Tensor.double)):
        given = [place(one).detach().requires_grad_() for one in inputs]
        results = function(*given)
        found = torch.autograd.grad(results, given, [place(one) for one in gradients])
        rows.append([one.detach().cpu().double() for one in (*results, *found)])
    return list(zip(*rows, strict=True))


# ---- how fast are they?


def sweep(item: Item, device: torch.device, out: Path) -> Found:
    """Microseconds of a call and bytes/s of the norms, in each tile, their own first."""
    found: dict[str, dict] = {}
    for label, run, moved in norm_calls(item, device):
        us = microseconds(run, device)
        found[label] = {"us": us, "bytes_per_s": moved / us * 1e6}
        yield found, ""
    yield found, f"{len(found)} norms"


def norm_calls(item: Item, device: torch.device) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Each norm and its gradient: what it is called, a call of it, and the bytes that it moves at least.

    For batch 1 and the item's, of which a step makes pairs. The tiles of `nhwc_norm` change for good, so run it in a
    process of its own.
    """
    forward, backward = nhwc_norm.nhwc_norm, nhwc_norm.nhwc_norm_backward
    for tile, label, n in itertools.product(TILES, NORMS, sorted({2, 2 * item.batch_size})):
        if tile != TILES[0] and label != "residual":
            continue
        nhwc_norm.PIXELS, nhwc_norm.WARPS = tile
        c, *sides, pad = NORMS[label]
        h, w = (side * item.size // 256 for side in sides)
        x = torch.randn(n, h, w, c, device=device, dtype=BF16)
        y, kept = forward(x, None, 1e-5, 0.0, pad)
        dy, inner, whole, padded = torch.randn_like(y), y[:, pad : pad + h, pad : pad + w], 2 * x.numel(), 2 * y.numel()
        calls = {
            "norm": (forward, (x, None, 1e-5, 0.0, pad), 2 * whole + padded),
            "norm with a skip": (forward, (x, inner, 1e-5, 1.0, pad), 3 * whole + padded),
            "gradient": (backward, (x, kept, dy, None, 0.0, pad), 5 * whole + padded),
            "gradient with a skip": (backward, (x, kept, dy, x, 1.0, pad), 6 * whole + padded),
        }
        for what, (function, arguments, moved) in calls.items():
            yield f"{label}, {n} pictures, {what}, tile {tile}", functools.partial(function, *arguments), moved


def convolutions(item: Item, device: torch.device, out: Path) -> Found:
    """Microseconds and FLOP/s of a step's convolutions in bf16: forward, and the gradients of pictures and of weights.

    With the channels last, and as PyTorch has them, when cuDNN converts. `stays` says whether the result is laid out
    as the picture was.
    """
    found: dict[str, dict] = {}
    layouts = torch.channels_last, torch.contiguous_format
    for n, label, layout in itertools.product(sorted({2, 2 * item.batch_size}), CONVOLUTIONS, layouts):
        c, channels, kernel, stride, pad, transposed, *sides = CONVOLUTIONS[label]
        shapes = (n, c, *(side * item.size // 256 for side in sides)), (channels, c, *kernel)
        if transposed:
            shapes = shapes[0], (c, channels, *kernel)
        x, weight = (torch.randn(one, device=device, dtype=BF16).contiguous(memory_format=layout) for one in shapes)
        rest = [stride] * 2, [pad] * 2, [1, 1], transposed, [int(transposed)] * 2, 1
        forward = functools.partial(torch.ops.aten.convolution, x, weight, None, *rest)
        y = forward()
        dy, small = torch.randn_like(y), x if transposed else y  # each pixel of the smaller one meets the whole weight
        flops = 2 * small.shape[0] * small.shape[2] * small.shape[3] * weight.numel()
        row = found[f"{label}, {n} pictures, {layout}"] = {"stays": y.is_contiguous(memory_format=layout)}
        for way, wanted in WAYS.items():
            backward = functools.partial(torch.ops.aten.convolution_backward, dy, x, weight, None, *rest, wanted)
            us = microseconds(backward if wanted else forward, device)
            row[way] = {"us": us, "flop_per_s": flops / us * 1e6}
        yield found, ""
    yield found, f"{len(found)} convolutions"


def microseconds(run: Callable[[], object], device: torch.device) -> float:
    """What a call takes: on a GPU the median over replays of several in a graph, without their launches from Python."""
    if device.type == "cuda":
        from triton.testing import do_bench_cudagraph

        return 1e3 * do_bench_cudagraph(run, rep=REPLAYED_MS, return_mode="median")
    began = time.perf_counter()
    run()
    return 1e6 * (time.perf_counter() - began)
