"""The gradient of a convolution's weight as one product of matrices, for pictures that lie channels last.

With AVX2, oneDNN takes two to four times as long for it channels last as channels first (measured in November 2026).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from labkit.variants.cpp import products

AT_ONCE = 1 << 18  # numbers of patches in one product, which stay in the cache


def suits(layer: Any) -> bool:
    """Whether it is a convolution, or a transposed one, that `PatchConvolution` computes and that gains from it."""
    usual = dict(dilation=(1, 1), groups=1, padding_mode="zeros")
    return (
        type(layer) in (nn.Conv2d, nn.ConvTranspose2d)
        and usual.items() <= vars(layer).items()
        and isinstance(layer.padding, tuple)  # and not "same"
        and min(layer.in_channels, layer.out_channels) >= 16  # with fewer, oneDNN is as fast
    )


def convolution(layer: Any, x: Tensor) -> Tensor:
    """What the layer computes of x (N, C, H, W). Under autocast, gradients stay PyTorch's."""
    if torch.is_autocast_enabled("cpu"):
        return type(layer).forward(layer, x)
    return PatchConvolution.apply(x, layer.weight, layer.bias, layer)


class PatchConvolution(torch.autograd.Function):
    """PyTorch's convolution of x (N, C, H, W), but for its weight's gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return torch.convolution(x, weight, bias, *geometry(layer))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (x, weight), layer, dx, dw, db = ctx.saved_tensors, ctx.layer, None, None, None
        if ctx.needs_input_grad[0]:
            only_x = [True, False, False]
            dx = torch.ops.aten.convolution_backward(dy, x, weight, None, *geometry(layer), only_x)[0]
        if ctx.needs_input_grad[1]:
            larger, smaller = (dy, x) if layer.transposed else (x, dy)
            dw = weight_gradient(pixels(larger), pixels(smaller), layer)
        if ctx.needs_input_grad[2]:
            db = pixels(dy).sum((0, 1, 2))
        return dx, dw, db, None


def geometry(layer: Any) -> tuple:
    """Of a layer, what PyTorch's convolution and its gradient take behind the tensors."""
    return layer.stride, layer.padding, layer.dilation, layer.transposed, layer.output_padding, layer.groups


def weight_gradient(x: Tensor, dy: Tensor, layer: Any) -> Tensor:
    """The sum over all pixels of dy (N, h, w, K) times the patch of x (N, H, W, C) under it: (K, C, *kernel_size)."""
    (height, width), (down, right), (above, before) = layer.kernel_size, layer.stride, layer.padding
    n, rows, columns, k = dy.shape
    x = F.pad(x, (0, 0, before, before, above, above))
    channels, (picture, row, pixel, one) = x.shape[3], x.stride()
    in_a_row = width * channels  # side by side in memory, so that a patch is copied in `height` pieces
    patches = x.as_strided((n, rows, columns, height, in_a_row), (picture, down * row, right * pixel, row, one))
    dw = x.new_zeros(k, height * in_a_row)
    some = max(1, AT_ONCE // (columns * dw.shape[1]))  # rows
    for one_dy, its_patches in zip(dy, patches, strict=True):
        for part, its_part in zip(one_dy.split(some), its_patches.split(some), strict=True):
            products(part.reshape(1, -1, k).mT, its_part.reshape(1, -1, dw.shape[1]), dw[None])
    return dw.view(k, height, width, channels).permute(0, 3, 1, 2)


def pixels(x: Tensor) -> Tensor:
    """(N, H, W, C), contiguous, of (N, C, H, W)."""
    return x.permute(0, 2, 3, 1).contiguous()
