"""Instance norm and the activation behind it, for the speed-ups that make them one kernel: the layers, the gradient."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def norms(network: nn.Module) -> Iterator[tuple[nn.InstanceNorm2d, nn.Module | None, float]]:
    """The plain instance norms, each with the ReLU or LeakyReLU behind it, if any, and this one's slope, or 1."""
    layers = [layer for _, layer in network.named_modules(remove_duplicate=False)]
    behind = dict(pair for row in layers if type(row) is nn.Sequential for pair in itertools.pairwise(row))
    for norm in filter(is_plain, layers):
        after = behind.get(norm)
        # A custom network may use either elsewhere, too, where the other is not beside it.
        if type(after) in (nn.ReLU, nn.LeakyReLU) and layers.count(norm) == layers.count(after) == 1:
            yield norm, after, getattr(after, "negative_slope", 0.0)
        else:
            yield norm, None, 1.0


def is_plain(layer: nn.Module) -> bool:
    """True for an instance norm without weights and running statistics."""
    return type(layer) is nn.InstanceNorm2d and not (layer.affine or layer.track_running_stats)


def fused(network: nn.Module, kernel: Callable[..., Tensor]) -> dict[nn.Module, Callable[[Tensor], Tensor]]:
    """The `forwards` of `Substitutes`: ``kernel(x, eps=..., slope=...)`` for each norm, nothing for its activation."""
    forwards: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
    for norm, after, slope in norms(network):
        forwards[norm] = functools.partial(kernel, eps=norm.eps, slope=slope)
        if after:
            forwards[after] = lambda x: x
    return forwards


class NormAndActivation(torch.autograd.Function):
    """Instance norm of a contiguous x, of which negative results are multiplied by `slope`.

    ``norm(x, eps, slope)`` gives the result and some statistics. ``gradient(x, statistics, dy, slope)`` gives the
    gradient of x for that of the result, `dy`, which is contiguous, too. Second derivatives are refused.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, slope: float, norm: Callable, gradient: Callable) -> Tensor:
        y, statistics = norm(x, eps, slope)
        ctx.save_for_backward(x, statistics)
        ctx.slope, ctx.gradient = slope, gradient
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None, None]:
        return ctx.gradient(*ctx.saved_tensors, dy.contiguous(), ctx.slope), None, None, None, None
