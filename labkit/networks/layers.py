"""Shared by generators and discriminators: normalisation by name, initial weights, and their base classes."""

from __future__ import annotations

from torch import nn

NORMS = ("instance", "batch", "none", "instance_blocks")


def norm_layer(norm: str, channels: int) -> nn.Module:
    """The normalisation called `norm` over (B, channels, H, W).

    Instance norm has neither weights nor running statistics, as in Zhu et al. 2017 (section 4). Where there is
    no normalisation an `nn.Identity` keeps its place, so that the layers after it keep their names.
    """
    if norm == "instance":
        return nn.InstanceNorm2d(channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    return nn.Identity()


def initialise(network: nn.Module) -> None:
    """Initial weights of Zhu et al. 2017 (appendix 7.1): normal(0, 0.02), biases zero; batch norm scales around 1."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)


class Generator(nn.Module):
    """A network that translates pictures, (B, 3, H, W) in [-1, 1] in and out.

    H and W have to be multiples of `size_multiple` and at least `min_size`.
    """

    size_multiple: int
    min_size: int


class Discriminator(nn.Module):
    """A network that judges pictures, (B, 3, H, W) in [-1, 1], H and W at least `min_size`: unbounded verdicts."""

    min_size: int
