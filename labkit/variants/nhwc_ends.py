"""nhwc, the first and the last convolution of a network, which have few channels on one side: tensor cores take 8.

A generator's first convolution, of 7 x 7 with 3 channels in, is one of 7 x 1 with 21: `columns_as_channels` puts the
7 columns that it covers side by side, as channels of one pixel. Its last one, with 3 channels out, is one of 7 x 1 into
21, which `channels_as_columns` adds up, each shifted by its column. The sums have the same terms. Zeros fill up to 24
channels. A discriminator's have 4 columns. Lane c + C * column of a pixel is channel c of a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from labkit.variants.nhwc_norm import operator, pixels_first, run_grid

tl: Any = None  # triton.language, set by `as_triton`
ALIGNED = 8  # channels of 16 bits: tensor cores read 16 bytes of a pixel at a time
TILE = 64  # pixels that a program writes, with all their channels


class ColumnsAsChannels(torch.autograd.Function):
    """Pictures x (N, C, H, W), so that a convolution over `columns` columns becomes one over a single column.

    A pixel of the result, (N, columns * C and some zeros, rows, W'), has the pixels of x side by side that the
    filter covers in its row. With `reflect` the picture is continued above and below, too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, columns: int, stride: int, pad: int, reflect: bool) -> Tensor:
        ctx.shape, ctx.dtype, ctx.arguments = x.shape, x.dtype, (columns, stride, pad, reflect)
        return PACK(x.contiguous(), dtype, *ctx.arguments).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple:
        return UNPACK(pixels_first(dy), ctx.shape, ctx.dtype, *ctx.arguments), None, None, None, None, None


class ChannelsAsColumns(torch.autograd.Function):
    """The sums of y (N, columns * C and more, H, W) over its columns, each shifted by its number, and a bias.

    y is continued by `pad` zeros at the left and the right. The result is (N, C, H, W'), of the bias's type.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor, columns: int, pad: int, tanh: bool) -> Tensor:
        out = ADD(pixels_first(y), bias, columns, pad, tanh)
        ctx.save_for_backward(out)
        ctx.lanes, ctx.dtype, ctx.arguments = y.shape[1], y.dtype, (columns, pad, tanh)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple:
        (out,) = ctx.saved_tensors
        dy = SPREAD(d_out.contiguous(), out, ctx.lanes, ctx.dtype, *ctx.arguments)
        _, pad, _ = ctx.arguments
        own = slice(pad * out.shape[1], (pad + 1) * out.shape[1])  # of the column that is not shifted
        d_bias = dy[..., own].sum((0, 1, 2), dtype=out.dtype) if ctx.needs_input_grad[1] else None
        return dy.permute(0, 3, 1, 2), d_bias, None, None, None


columns_as_channels, channels_as_columns = ColumnsAsChannels.apply, ChannelsAsColumns.apply

# ---- the operators: pictures x and out are (N, C, H, W), what the convolutions read or write is (N, H, W, channels)


def nhwc_pack(x: Tensor, dtype: torch.dtype, columns: int, stride: int, pad: int, reflect: bool) -> Tensor:
    """The result of `columns_as_channels`, (N, rows, W', columns * C and some zeros)."""
    batch, channels, height, width = x.shape
    rows, across = height + 2 * pad if reflect else height, (width + 2 * pad - columns) // stride + 1
    lanes = channels * columns + -channels * columns % ALIGNED
    y = x.new_empty(batch, rows, across, lanes, dtype=dtype)
    flags = dict(COLUMNS=columns, STRIDE=stride, PAD=pad, REFLECT=reflect, C=channels, WIDE=lanes)
    launch(pack_kernel, y, x, y, height, width, rows, across, **flags)
    return y


def nhwc_unpack(
    dy: Tensor, shape: list[int], dtype: torch.dtype, columns: int, stride: int, pad: int, reflect: bool
) -> Tensor:
    """The gradient of pictures of this shape."""
    dx = dy.new_empty(shape, dtype=dtype)
    flags = dict(COLUMNS=columns, STRIDE=stride, PAD=pad, REFLECT=reflect, C=shape[1], WIDE=dy.shape[3])
    launch(unpack_kernel, dx.permute(0, 2, 3, 1), dy, dx, *shape[2:], *dy.shape[1:3], **flags)
    return dx


def nhwc_add(y: Tensor, bias: Tensor, columns: int, pad: int, tanh: bool) -> Tensor:
    """The result of `channels_as_columns`."""
    batch, height, width, lanes = y.shape
    across = width + 2 * pad - columns + 1
    out = bias.new_empty(batch, len(bias), height, across)
    flags = dict(COLUMNS=columns, PAD=pad, TANH=tanh, C=len(bias), WIDE=lanes)
    launch(add_kernel, out.permute(0, 2, 3, 1), y, bias, out, height, width, across, **flags)
    return out


def nhwc_spread(
    d_out: Tensor, out: Tensor, lanes: int, dtype: torch.dtype, columns: int, pad: int, tanh: bool
) -> Tensor:
    """The gradient of y."""
    batch, channels, height, across = out.shape
    width = across - 2 * pad + columns - 1
    dy = out.new_empty(batch, height, width, lanes, dtype=dtype)
    flags = dict(COLUMNS=columns, PAD=pad, TANH=tanh, C=channels, WIDE=lanes)
    launch(spread_kernel, dy, d_out, out, dy, height, width, across, **flags)
    return dy


PACK, UNPACK, ADD, SPREAD = operator(nhwc_pack), operator(nhwc_unpack), operator(nhwc_add), operator(nhwc_spread)


def launch(kernel: Callable, result: Tensor, *arguments: Any, **constants: Any) -> None:
    """Runs a kernel on all pixels of the result (N, H, W, C), TILE at a time, each with all its channels."""
    grid = (math.ceil(result.shape[1] * result.shape[2] / TILE), result.shape[0])  # x may be large, y only 65,535
    most = 2 ** math.ceil(math.log2(result.shape[3]))
    run_grid(kernel, grid, result, *arguments, **constants, LANES=most, TILE=TILE, num_warps=4)


# ---- the kernels: a program writes TILE pixels p of a picture, each with all its channels, in LANES


def pack_kernel(  # type: ignore[no-untyped-def]
    x, y, height, width, rows, across, COLUMNS: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    REFLECT: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Writes columns of x (N, C, H, W) side by side to y (N, rows, across, WIDE)."""
    picture, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    lane = tl.arange(0, LANES)[None, :]
    i, j = p // across, (p % across) * STRIDE + lane // C - PAD
    if REFLECT:
        i, j = tl.abs(i - PAD), tl.abs(j)
        i, j = tl.where(i < height, i, 2 * height - 2 - i), tl.where(j < width, j, 2 * width - 2 - j)
    there = (p < rows * across) & (j >= 0) & (j < width) & (lane < C * COLUMNS)
    at = ((picture * C + lane % C) * height + i) * width + j
    inside = (p < rows * across) & (lane < WIDE)
    tl.store(y + (picture * rows * across + p) * WIDE + lane, tl.load(x + at, mask=there, other=0.0), mask=inside)


def unpack_kernel(  # type: ignore[no-untyped-def]
    dy, dx, height, width, rows, across, COLUMNS: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    REFLECT: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Writes to dx (N, C, H, W) the sums over all places in dy to which a pixel went."""
    picture, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    c = tl.arange(0, LANES)[None, :]
    i, j, inside = p // width, p % width, (p < height * width) & (c < C)
    total = tl.zeros((TILE, LANES), dx.dtype.element_ty)
    dy += picture * rows * across * WIDE
    for vertical in tl.static_range(3 if REFLECT else 1):  # the row itself, and its images above and below
        row, up = i + (PAD if REFLECT else 0), inside
        if vertical == 1:
            row, up = PAD - i, inside & (i >= 1) & (i <= PAD)
        if vertical == 2:
            row, up = 2 * height - 2 - i + PAD, inside & (i >= height - 1 - PAD) & (i <= height - 2)
        for sideways in tl.static_range(3 if REFLECT else 1):  # the column itself, and its images
            place, there = j + PAD, up
            if sideways == 1:
                place, there = PAD - j, up & (j >= 1) & (j <= PAD)
            if sideways == 2:
                place, there = 2 * width - 2 - j + PAD, up & (j >= width - 1 - PAD) & (j <= width - 2)
            for column in tl.static_range(COLUMNS):
                q = (place - column) // STRIDE
                taken = there & (place >= column) & ((place - column) % STRIDE == 0) & (q < across)
                at = (row * across + q) * WIDE + column * C + c
                total += tl.load(dy + at, mask=taken, other=0.0).to(total.dtype)
    tl.store(dx + (picture * C + c) * height * width + p, total, mask=inside)


def add_kernel(  # type: ignore[no-untyped-def]
    y, bias, out, height, width, across, COLUMNS: tl.constexpr, PAD: tl.constexpr, TANH: tl.constexpr,
    C: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Writes to out (N, C, H, across) the sums of y (N, H, W, WIDE) over its columns, with a bias and tanh."""
    picture, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    c = tl.arange(0, LANES)[None, :]
    i, j, inside = p // across, p % across, (p < height * across) & (c < C)
    total = tl.zeros((TILE, LANES), out.dtype.element_ty) + tl.load(bias + c, mask=c < C, other=0.0)
    y += picture * height * width * WIDE
    for column in tl.static_range(COLUMNS):
        q = j + column - PAD
        at = (i * width + q) * WIDE + column * C + c
        total += tl.load(y + at, mask=inside & (q >= 0) & (q < width), other=0.0).to(total.dtype)
    if TANH:
        total = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * total))
    tl.store(out + (picture * C + c) * height * across + p, total, mask=inside)


def spread_kernel(  # type: ignore[no-untyped-def]
    d_out, out, dy, height, width, across, COLUMNS: tl.constexpr, PAD: tl.constexpr, TANH: tl.constexpr,
    C: tl.constexpr, WIDE: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Writes to dy (N, H, W, WIDE) the gradient of the sum that each number went into, or 0."""
    picture, p = tl.program_id(1).to(tl.int64), tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    lane = tl.arange(0, LANES)[None, :]
    i, j = p // width, p % width - lane // C + PAD
    inside = (p < height * width) & (lane < WIDE)
    there = inside & (j >= 0) & (j < across) & (lane < C * COLUMNS)
    at = ((picture * C + lane % C) * height + i) * across + j
    value = tl.load(d_out + at, mask=there, other=0.0)
    if TANH:
        made = tl.load(out + at, mask=there, other=0.0)
        value *= 1.0 - made * made
    tl.store(dy + (picture * height * width + p) * WIDE + lane, value, mask=inside)
