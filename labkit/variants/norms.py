"""Instance norms and the activations behind them, for the speed-ups that treat both together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import nn


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
