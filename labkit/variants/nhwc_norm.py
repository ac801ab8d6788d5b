"""nhwc, between two convolutions: instance norm, activation, skip and padding, as two kernels each way.

All pictures here lie in memory with the channels last, (N, H, W, C): the channels of a pixel side by side. A program
reads CHANNELS neighbouring channels of each pixel, and adds up over pixels.

    kernel                  reads                                             writes
    `moments_kernel`        x                                                 a part's moments of each channel
    `norm_kernel`           x, the moments, the skip                          the padded result, mean and 1 / deviation
    `gradient_sums_kernel`  x, mean and 1 / deviation, the gradients of the   g, the gradient of the norm before its
                            padded result and of the next skip                activation; a part's sums of g and g h
    `norm_backward_kernel`  x, g, the sums                                    the gradient of x

A channel's mean needs all its pixels, and programs may run one after another: hence two kernels each way, and not one.
A program for a whole picture could do with one, but would leave most of the GPU idle.

A residual block's forward pass is convolution, sums, norm (ReLU), convolution, sums, norm (skip). It keeps the padded
inputs and the results of both convolutions. Its skip is the inside of the block's padded input, and the skip's gradient
is the `g` of its second norm: the block before reads it with the gradient of its padded result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

tl: Any = None  # triton.language, set by `as_triton`
PIXELS, CHANNELS = 64, 64  # a tile, which a program holds at a time: in 16 bits 128 bytes of each pixel
WARPS = 4  # of a program, for a tile of this size
ROWS = 4  # pixels that a warp reads at once, 16 bytes a thread: a thread adds up its own before it meets the others
SUMMING, WRITING = 512, 1024  # programs to aim at, of a kernel that adds up and of one that only writes
MOST_PARTS = 64  # of a picture's pixels, for a sum


def norm(x: Tensor, skip: Tensor | None = None, slope: float = 0.0, pad: int = 0) -> tuple[Tensor, Tensor]:
    """The instance norm of x, then a skip added to it; or, without one, an activation: negative results times `slope`.

    Args:
        x: (N, C, H, W). It is copied if it has not the channels last in memory.
        skip: (N, C, H, W), the second result of an earlier `norm`.
        pad: reflected pixels on each side of the result, less than H and W.

    Returns:
        The padded result (N, C, H + 2 pad, W + 2 pad) for the next convolution, and without its border, for the next
        skip. They share their memory, but have gradients of their own, which a kernel adds up as it reads them.
    """
    return Norm.apply(x, skip, 1e-5, slope if skip is None else 1.0, pad)


class Norm(torch.autograd.Function):
    """`norm`, forward and backward. Second derivatives, as of a gradient penalty, are refused."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, skip: Tensor | None, eps: float, slope: float, pad: int) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        x, added = pixels_first(x), None if skip is None else skip.permute(0, 2, 3, 1)
        y, statistics = NORM(x, added, eps, slope, pad)
        ctx.save_for_backward(x, statistics)
        ctx.slope, ctx.pad, ctx.has_skip = slope, pad, skip is not None
        inner = y[:, pad : pad + x.shape[1], pad : pad + x.shape[2]]
        return y.permute(0, 3, 1, 2), inner.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, d_inner: Tensor | None) -> tuple:
        x, statistics = ctx.saved_tensors
        inner = None if d_inner is None else pixels_first(d_inner)
        dx, g = NORM_BACKWARD(x, statistics, pixels_first(dy), inner, ctx.slope, ctx.pad)
        return dx.permute(0, 3, 1, 2), g.permute(0, 3, 1, 2) if ctx.has_skip else None, None, None, None


def pixels_first(x: Tensor) -> Tensor:
    """x (N, C, H, W) as (N, H, W, C), contiguous: no copy if it has the channels last."""
    return x.permute(0, 2, 3, 1).contiguous()


# ---- the operators, which CUDA graphs and recordings of operators see: tensors are (N, H, W, C)


def operator(function: Callable) -> Callable:
    """The function as an operator of PyTorch's kind, ``torch.ops.labkit.<its name>``."""
    kept = function.__globals__.setdefault("OPERATORS", {})  # of a module, which importlib may load again
    kept.pop(function.__name__, None)  # and with it the operator
    library = kept[function.__name__] = torch.library.Library("labkit", "FRAGMENT")
    # `torch.library.custom_op` would say it in fewer words, but a call would cost the host half as much again.
    library.define(function.__name__ + torch.library.infer_schema(function, mutates_args=()))
    library.impl(function.__name__, function, "CompositeExplicitAutograd")
    return getattr(torch.ops.labkit, function.__name__)


def nhwc_norm(x: Tensor, skip: Tensor | None, eps: float, slope: float, pad: int) -> tuple[Tensor, Tensor]:
    """The padded result, and each channel's mean and 1 / deviation (N, 1, 2, C), in float32 at least."""
    batch, height, width, channels = x.shape
    dtype, (parts, larger) = torch.promote_types(x.dtype, torch.float32), parts_of_sum(x)
    y = x.new_empty(batch, height + 2 * pad, width + 2 * pad, channels)
    statistics, moments = (x.new_empty(batch, n, 2, channels, dtype=dtype) for n in (1, parts))
    pixels, written = height * width, y.shape[1] * y.shape[2]
    launch(moments_kernel, x, pixels, parts, x, moments, pixels, channels, larger=larger, ROWS=ROWS * WARPS * larger)
    flags: dict[str, Any] = {"SUM_PARTS": parts, "EPS": eps, "SLOPE": slope, "PAD": pad, "HAS_SKIP": skip is not None}
    added = x if skip is None else skip  # any tensor: without a skip it is not read
    each = pixels_of_part(pixels, parts, larger)
    arguments = x, moments, statistics, added, y, *added.stride()[:3], height, width, channels, each
    launch(norm_kernel, x, written, parts_of(x, written), *arguments, **flags)
    return y, statistics


def nhwc_norm_backward(
    x: Tensor, statistics: Tensor, dy: Tensor, d_inner: Tensor | None, slope: float, pad: int
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the norm, also the skip's, for those of the padded result and of its inner part."""
    batch, height, width, channels = x.shape
    dx, g, (parts, larger) = torch.empty_like(x), torch.empty_like(x), parts_of_sum(x)
    sums = x.new_empty(batch, parts, 2, channels, dtype=statistics.dtype)
    # Without a gradient of the inner part, any tensor stands for it: it is not read.
    arguments = x, statistics, dy, dy if d_inner is None else d_inner, g, sums, height, width, channels
    flags = {"SLOPE": slope, "PAD": pad, "HAS_INNER": d_inner is not None, "ROWS": ROWS * WARPS * larger}
    pixels = height * width
    # With padding it would take some registers more than 128, and a multiprocessor could run fewer programs at a time.
    launch(gradient_sums_kernel, x, pixels, parts, *arguments, larger=larger, maxnreg=128 if pad else None, **flags)
    others = statistics, g, sums, dx
    launch(norm_backward_kernel, x, pixels, parts_of(x, pixels), x, *others, pixels, channels, SUM_PARTS=parts)
    return dx, g


NORM, NORM_BACKWARD = operator(nhwc_norm), operator(nhwc_norm_backward)


def parts_of(x: Tensor, pixels: int) -> int:
    """Into how many parts to divide that many pixels of each picture of x to write them: about WRITING in all."""
    tiles = math.ceil(pixels / PIXELS)
    return math.ceil(tiles / math.ceil(tiles * pictures_of(x) / WRITING))


def parts_of_sum(x: Tensor) -> tuple[int, int]:
    """Into how many parts to divide the pixels of x for a sum, a power of two, and how many times as large a tile is.

    All programs of the next kernel add up all parts. So where they would be many, tiles are larger, with more warps.
    """
    for larger in (1, 16 // WARPS):
        tiles = math.ceil(x.shape[1] * x.shape[2] / PIXELS / larger)
        parts = 2 ** int(math.log2(max(1, min(SUMMING / larger / pictures_of(x), tiles, MOST_PARTS))))
        if parts <= MOST_PARTS / 4:
            break
    return parts, larger


def pictures_of(x: Tensor) -> int:
    """The pictures of x (N, H, W, C), each counted as often as programs divide its channels."""
    return x.shape[0] * math.ceil(x.shape[3] / channels_of(x))


def channels_of(x: Tensor) -> int:
    """How many of the channels of x (N, H, W, C) a program takes: a power of two."""
    return min(CHANNELS, 2 ** math.ceil(math.log2(x.shape[3])))


def launch(kernel: Callable, x: Tensor, pixels: int, parts: int, *given: Any, larger: int = 1, **flags: Any) -> None:
    """Runs a kernel on so many parts of each picture's pixels, for x (N, H, W, C), in tiles `larger` times as large."""
    channels, each = channels_of(x), pixels_of_part(pixels, parts, larger)
    flags |= {"PARTS": parts, "TILE": PIXELS * larger, "CHANNELS": channels, "num_warps": WARPS * larger}
    run_grid(kernel, (x.shape[0] * parts, math.ceil(x.shape[3] / channels)), x, *given, each, **flags)


def pixels_of_part(pixels: int, parts: int, larger: int) -> int:
    """How many pixels a part has, in whole tiles. The last one may have fewer."""
    return math.ceil(pixels / parts / (PIXELS * larger)) * PIXELS * larger


def run_grid(kernel: Callable, grid: tuple[int, int], on: Tensor, *arguments: Any, **constants: Any) -> None:
    """Runs so many programs of a kernel where this tensor lies."""
    if not on.is_meta:  # there are shapes, and no numbers
        with torch.cuda.device_of(on):
            as_triton(kernel)[grid](*arguments, **constants, enable_fp_fusion=True)  # Triton's default will change


@functools.cache
def as_triton(kernel: Callable) -> Any:
    """The kernel as Triton compiles it or, with TRITON_INTERPRET=1 in the environment, interprets it.

    Triton exists for Linux only, so it is imported with the first kernel, and only then given to its module.
    """
    import triton

    kernel.__globals__["tl"] = triton.language
    return triton.jit(kernel)


# ---- the kernels: a program takes one of the PARTS of a picture's pixels, and CHANNELS of its channels


def moments_kernel(  # type: ignore[no-untyped-def]
    x, moments, pixels, channels, each,
    PARTS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Writes a part's mean and its sum of squares about it.

    Added up are d and d * d, for d = x less the mean of the part's first ROWS pixels: digits would cancel else, and
    with a single pixel's value, too, if that one is far from all others.
    """
    picture, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    x += picture.to(tl.int64) * pixels * channels
    total = tl.zeros((ROWS, CHANNELS), moments.dtype.element_ty)
    squares = tl.zeros((ROWS, CHANNELS), moments.dtype.element_ty)
    begin, n = part * each, tl.maximum(tl.minimum(each, pixels - part * each), 1)  # the last ones may have no pixels
    q = begin + tl.arange(0, ROWS)[:, None]
    some = tl.load(x + q * channels + c, mask=(q < pixels) & (c < channels), other=0.0).to(total.dtype)
    shift = tl.sum(some, 0)[None, :] / tl.minimum(ROWS, n)
    for start in range(begin, tl.minimum(begin + each, pixels), TILE):
        p = start + tl.arange(0, TILE)[:, None]
        inside = (p < pixels) & (c < channels)
        d = tl.load(x + p * channels + c, mask=inside, other=0.0).to(total.dtype) - shift
        d = tl.where(inside, d, 0.0)
        total += tl.sum(tl.reshape(d, (TILE // ROWS, ROWS, CHANNELS)), 0)
        squares += tl.sum(tl.reshape(d * d, (TILE // ROWS, ROWS, CHANNELS)), 0)
    place = moments + ((picture * PARTS + part) * 2) * channels + c
    d = tl.sum(total, 0)[None, :] / n
    tl.store(place, shift + d, mask=c < channels)
    tl.store(place + channels, tl.sum(squares, 0)[None, :] - d * d * n, mask=c < channels)


def norm_kernel(  # type: ignore[no-untyped-def]
    x, moments, statistics, skip, y, skip_n, skip_h, skip_w, height, width, channels, summed, each,
    SUM_PARTS: tl.constexpr, EPS: tl.constexpr, SLOPE: tl.constexpr, PAD: tl.constexpr, HAS_SKIP: tl.constexpr,
    PARTS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """Writes each channel's mean and 1 / deviation, and to y the padded result. The skip has strides of its own.

    The moments of parts of `summed` pixels are merged as in Chan et al. 1979, "Updating formulae and a pairwise
    algorithm for computing sample variances".
    """
    picture, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    across, pixels = width + 2 * PAD, (height + 2 * PAD) * (width + 2 * PAD)
    x += picture.to(tl.int64) * height * width * channels
    y += picture.to(tl.int64) * pixels * channels
    skip += picture.to(tl.int64) * skip_n
    other = tl.arange(0, SUM_PARTS)[:, None]
    place = moments + ((picture * SUM_PARTS + other) * 2) * channels + c
    squares = tl.sum(tl.load(place + channels, mask=c < channels, other=0.0), 0)[None, :]
    means = tl.load(place, mask=c < channels, other=0.0)
    n = tl.maximum(tl.minimum(summed, height * width - other * summed), 0).to(means.dtype)
    m = tl.sum(means * n, 0)[None, :] / (height * width)
    squares += tl.sum((means - m) * (means - m) * n, 0)[None, :]
    r = 1.0 / tl.sqrt(tl.maximum(squares / (height * width), 0.0) + EPS)
    if part == 0:
        tl.store(statistics + picture * 2 * channels + c, m, mask=c < channels)
        tl.store(statistics + (picture * 2 + 1) * channels + c, r, mask=c < channels)
    for start in range(part * each, tl.minimum(part * each + each, pixels), TILE):
        p = start + tl.arange(0, TILE)[:, None]
        inside = (p < pixels) & (c < channels)
        i, j = tl.abs(p // across - PAD), tl.abs(p % across - PAD)  # reflected above, and at the left
        i, j = tl.where(i < height, i, 2 * height - 2 - i), tl.where(j < width, j, 2 * width - 2 - j)
        h = (tl.load(x + (i * width + j) * channels + c, mask=inside, other=0.0).to(m.dtype) - m) * r
        h = tl.where(h > 0, h, SLOPE * h)
        if HAS_SKIP:
            h += tl.load(skip + i * skip_h + j * skip_w + c, mask=inside, other=0.0).to(m.dtype)
        tl.store(y + p * channels + c, h, mask=inside)


def gradient_sums_kernel(  # type: ignore[no-untyped-def]
    x, statistics, dy, d_inner, g, sums, height, width, channels, each,
    SLOPE: tl.constexpr, PAD: tl.constexpr, HAS_INNER: tl.constexpr,
    PARTS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Writes g, the gradient of the norm h before its activation, and sums of g and g h.

    A pixel's gradient is that of its place in the padded result, of its images in the border, and of the next skip.
    """
    picture, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    across, pixels = width + 2 * PAD, height * width
    x += picture.to(tl.int64) * pixels * channels
    g += picture.to(tl.int64) * pixels * channels
    d_inner += picture.to(tl.int64) * pixels * channels
    dy += picture.to(tl.int64) * (height + 2 * PAD) * across * channels
    m = tl.load(statistics + picture * 2 * channels + c, mask=c < channels, other=0.0)
    r = tl.load(statistics + (picture * 2 + 1) * channels + c, mask=c < channels, other=0.0)
    sum_g, sum_gh = tl.zeros((ROWS, CHANNELS), m.dtype), tl.zeros((ROWS, CHANNELS), m.dtype)
    for start in range(part * each, tl.minimum(part * each + each, pixels), TILE):
        p = start + tl.arange(0, TILE)[:, None]
        inside = (p < pixels) & (c < channels)
        i, j = p // width, p % width
        gradient = tl.zeros((TILE, CHANNELS), m.dtype)
        for vertical in tl.static_range(3 if PAD else 1):  # the pixel's row, and its images above and below the picture
            row, up, reached = i + PAD, inside, True
            if vertical == 1:
                row, up, reached = PAD - i, inside & (i >= 1) & (i <= PAD), start // width <= PAD
            if vertical == 2:
                row, up = 2 * height - 2 - i + PAD, inside & (i >= height - 1 - PAD) & (i <= height - 2)
                reached = (start + TILE - 1) // width >= height - 1 - PAD
            if reached:  # a tile far from the edge has no row with such an image
                for sideways in tl.static_range(3 if PAD else 1):  # the pixel itself, and its images left and right
                    column, there = j + PAD, up
                    if sideways == 1:
                        column, there = PAD - j, up & (j >= 1) & (j <= PAD)
                    if sideways == 2:
                        column, there = 2 * width - 2 - j + PAD, up & (j >= width - 1 - PAD) & (j <= width - 2)
                    at = (row * across + column) * channels + c
                    gradient += tl.load(dy + at, mask=there, other=0.0).to(m.dtype)
        if HAS_INNER:
            gradient += tl.load(d_inner + p * channels + c, mask=inside, other=0.0).to(m.dtype)
        h = (tl.load(x + p * channels + c, mask=inside, other=0.0).to(m.dtype) - m) * r
        gradient = tl.where(h > 0, gradient, SLOPE * gradient)
        tl.store(g + p * channels + c, gradient, mask=inside)
        sum_g += tl.sum(tl.reshape(gradient, (TILE // ROWS, ROWS, CHANNELS)), 0)
        sum_gh += tl.sum(tl.reshape(gradient * h, (TILE // ROWS, ROWS, CHANNELS)), 0)
    place = sums + ((picture * PARTS + part) * 2) * channels + c
    tl.store(place, tl.sum(sum_g, 0)[None, :], mask=c < channels)
    tl.store(place + channels, tl.sum(sum_gh, 0)[None, :], mask=c < channels)


def norm_backward_kernel(  # type: ignore[no-untyped-def]
    x, statistics, g, sums, dx, pixels, channels, each,
    SUM_PARTS: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """Writes r * (g - mean(g) - h * mean(g h)) to dx."""
    picture, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    x += picture.to(tl.int64) * pixels * channels
    g += picture.to(tl.int64) * pixels * channels
    dx += picture.to(tl.int64) * pixels * channels
    m = tl.load(statistics + picture * 2 * channels + c, mask=c < channels, other=0.0)
    r = tl.load(statistics + (picture * 2 + 1) * channels + c, mask=c < channels, other=0.0)
    place = sums + ((picture * SUM_PARTS + tl.arange(0, SUM_PARTS)[:, None]) * 2) * channels + c
    mean_g = tl.sum(tl.load(place, mask=c < channels, other=0.0), 0)[None, :] / pixels
    mean_gh = tl.sum(tl.load(place + channels, mask=c < channels, other=0.0), 0)[None, :] / pixels
    for start in range(part * each, tl.minimum(part * each + each, pixels), TILE):
        p = start + tl.arange(0, TILE)[:, None]
        inside = (p < pixels) & (c < channels)
        h = (tl.load(x + p * channels + c, mask=inside, other=0.0).to(m.dtype) - m) * r
        gradient = tl.load(g + p * channels + c, mask=inside, other=0.0).to(m.dtype)
        tl.store(dx + p * channels + c, r * (gradient - mean_g - h * mean_gh), mask=inside)
