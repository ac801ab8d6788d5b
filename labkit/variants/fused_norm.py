"""fused_norm: instance norm and the activation behind it are one kernel, forward and backward."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labkit.models.model import Model
from labkit.variants import Substitutes
from labkit.variants.norms import NormAndActivation, fused, is_plain

tl: Any = None  # triton.language, imported with the first kernel: Triton exists for Linux only
BLOCK = 4096  # numbers that a program holds at a time: whole planes, or a part of one


class FusedNorm(Substitutes):
    """Computes instance norm, and the ReLU or LeakyReLU behind it, in one kernel, and so their gradients.

    Differs from the baseline in one seam, `learn`: while it runs, kernels written in Triton take the place of these
    layers. PyTorch launches three kernels for the norm and one for the activation, each of which reads the picture
    again or writes it. Here a single program reads and writes each channel of a picture. The backward pass computes the
    activation's sign once more from the norm's input. 16-bit pictures are summed up in float32. Second derivatives, as
    of a gradient penalty, are refused.

    Improves: memory traffic, launches. Does not help beside "compile", which fuses such layers itself, nor where the
    convolutions fill the time. A launch from Python costs the host more than one of PyTorch's: at small batches take
    "graph", too. Without a GPU, TRITON_INTERPRET=1 in the environment lets Triton's interpreter run the kernels:
    slowly, for tests and lessons.
    """

    name = "fused_norm"
    changes = "instance norm and its activation are one kernel, written in Triton"
    improves = "memory traffic, launches"
    needs = "instance norm; a GPU and Triton, elsewhere it does nothing"
    excludes = {"compile": "the compiler fuses normalisation and activation itself"}

    @classmethod
    def why_unsuited(cls, model: Model) -> str | None:
        if not any(map(is_plain, model.modules())):
            return "batch norm, or none, leaves it no instance norm to fuse: use instance norm"
        if next(model.parameters()).device.type == "cuda" and importlib.util.find_spec("triton") is None:
            return "its kernels need Triton: pip install triton, or leave it out"
        return None

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        acts = next(model.parameters()).is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
        return None if acts else "Triton's kernels need a GPU"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        if FusedNorm.why_inactive(self.model) is None:
            self.forwards |= fused(self.model, norm_and_activation)
        return super().build(betas)


# ---- operators of PyTorch's kind, which CUDA graphs and our recordings of operators see


def norm_and_activation(x: Tensor, eps: float = 1e-5, slope: float = 0.0) -> Tensor:
    """Instance norm of x (..., H, W), of which negative results are multiplied by `slope`: 0 for ReLU, 1 for none."""
    ops = torch.ops.labkit
    return NormAndActivation.apply(x.contiguous(), eps, slope, ops.fused_norm, ops.fused_norm_backward)


def fused_norm(x: Tensor, eps: float, slope: float) -> tuple[Tensor, Tensor]:
    """The result, and all planes' means and then 1 / deviations, in float32 at least."""
    y = torch.empty_like(x)
    statistics = x.new_empty(2, *x.shape[:-2], dtype=torch.promote_types(x.dtype, torch.float32))
    launch(fused_norm_kernel, x, statistics, y, EPS=eps, SLOPE=slope)
    return y, statistics


def fused_norm_backward(x: Tensor, statistics: Tensor, dy: Tensor, slope: float) -> Tensor:
    """The gradient of x, for that of the result."""
    dx = torch.empty_like(x)
    launch(fused_norm_backward_kernel, x, statistics, dy, dx, SLOPE=slope)
    return dx


# `torch.library.custom_op` would say it in fewer lines, but a call would cost the host half as much again.
OPERATORS = torch.library.Library("labkit", "DEF")
for operator in (fused_norm, fused_norm_backward):
    OPERATORS.define(operator.__name__ + torch.library.infer_schema(operator, mutates_args=()))
    OPERATORS.impl(operator.__name__, operator, "CompositeExplicitAutograd")


def launch(kernel: Callable, x: Tensor, *others: Tensor, **constants: float) -> None:
    """Runs a kernel on every plane of x (..., H, W), that is each channel of each picture."""
    if x.is_meta:  # it has shapes, and no numbers
        return
    n = x.shape[-2] * x.shape[-1]
    planes, columns = x.numel() // n, min(BLOCK, 2 ** math.ceil(math.log2(n)))
    rows = min(BLOCK // columns, 2 ** math.ceil(math.log2(planes)))
    with torch.cuda.device_of(x):
        runnable = as_triton(kernel)[(math.ceil(planes / rows),)]
        runnable(x, *others, planes, n, **constants, ROWS=rows, BLOCK=columns, num_warps=8)


@functools.cache
def as_triton(kernel: Callable) -> Any:
    """The kernel as Triton compiles it or, with TRITON_INTERPRET=1, interprets it."""
    global tl
    import triton
    import triton.language as tl

    return triton.jit(kernel)


# ---- the kernels: a program takes ROWS planes of n pixels, and goes over them in blocks


def fused_norm_kernel(  # type: ignore[no-untyped-def]
    x, statistics, y, planes, n, EPS: tl.constexpr, SLOPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Writes the activated norm of x to y."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((ROWS, BLOCK), statistics.dtype.element_ty)
    for start in range(0, n, BLOCK):
        inside = (row < planes) & (start + column < n)
        total += tl.load(x + row * n + start + column, mask=inside, other=0.0).to(total.dtype)
    m = tl.sum(total, 1)[:, None] / n
    # A second pass: the mean of the squares minus the square of the mean loses its digits where the mean is large.
    squares = tl.zeros((ROWS, BLOCK), total.dtype)
    for start in range(0, n, BLOCK):
        inside = (row < planes) & (start + column < n)
        distance = tl.load(x + row * n + start + column, mask=inside, other=0.0).to(total.dtype) - m
        squares += tl.where(inside, distance * distance, 0.0)
    r = 1.0 / tl.sqrt(tl.sum(squares, 1)[:, None] / n + EPS)
    tl.store(statistics + row, m, mask=row < planes)
    tl.store(statistics + planes + row, r, mask=row < planes)
    for start in range(0, n, BLOCK):
        inside = (row < planes) & (start + column < n)
        h = (tl.load(x + row * n + start + column, mask=inside, other=0.0).to(total.dtype) - m) * r
        tl.store(y + row * n + start + column, tl.where(h > 0, h, SLOPE * h), mask=inside)


def fused_norm_backward_kernel(  # type: ignore[no-untyped-def]
    x, statistics, dy, dx, planes, n, SLOPE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Writes r * (g - mean(g) - h * mean(g * h)) to dx, for the norm h, its gradient g, and r = 1 / deviation."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    m = tl.load(statistics + row, mask=row < planes, other=0.0)
    r = tl.load(statistics + planes + row, mask=row < planes, other=0.0)
    sum_g, sum_gh = tl.zeros((ROWS, BLOCK), m.dtype), tl.zeros((ROWS, BLOCK), m.dtype)
    for start in range(0, n, BLOCK):
        inside = (row < planes) & (start + column < n)
        h = (tl.load(x + row * n + start + column, mask=inside, other=0.0).to(m.dtype) - m) * r
        g = tl.load(dy + row * n + start + column, mask=inside, other=0.0).to(m.dtype)
        g = tl.where(h > 0, g, SLOPE * g)
        sum_g += g
        sum_gh += g * h
    mean_g, mean_gh = tl.sum(sum_g, 1)[:, None] / n, tl.sum(sum_gh, 1)[:, None] / n
    for start in range(0, n, BLOCK):
        inside = (row < planes) & (start + column < n)
        h = (tl.load(x + row * n + start + column, mask=inside, other=0.0).to(m.dtype) - m) * r
        g = tl.load(dy + row * n + start + column, mask=inside, other=0.0).to(m.dtype)
        g = tl.where(h > 0, g, SLOPE * g)
        tl.store(dx + row * n + start + column, r * (g - mean_g - h * mean_gh), mask=inside)
