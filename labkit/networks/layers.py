"""Shared by generators and discriminators: normalisation, initial weights, base classes, and custom networks."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError

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
    """Initial weights of Zhu et al. 2017 (appendix 7.1): normal(0, 0.02), zero biases, batch norm scales around 1."""
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(layer.weight, 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02)
            nn.init.zeros_(layer.bias)


def initialise_unnormalised(layers: Iterable[nn.Module]) -> None:
    """Kaiming weights, which keep the variance from layer to layer where nothing normalises, and zero biases."""
    for layer in layers:
        if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class Generator(nn.Module):
    """A network that translates pictures, (B, channels, H, W) in [-1, 1], into pictures of the same size.

    H and W have to be multiples of `size_multiple` and at least `min_size`.
    """

    channels: int = 3
    size_multiple: int
    min_size: int


def channels_of(network: nn.Module) -> int:
    """Channels of the pictures that a network takes: three, if it does not say."""
    return getattr(network, "channels", 3)


class Discriminator(nn.Module):
    """A network that judges pictures, (B, C, H, W) in [-1, 1], H and W at least `min_size`: unbounded verdicts."""

    min_size: int


# ---- custom networks, of which `labkit.CycleGAN` trains two copies

CUSTOM = "own: "  # begins the name that a custom network has in settings and checkpoints
# Most take RGB and halve the picture twice; smaller pictures leave nothing to judge.
USUAL = {"channels": 3, "size_multiple": 4, "min_size": 16}


def custom_copy(argument: str, network: object) -> Any:
    """A copy of a custom network, with the attributes `channels`, `size_multiple` and `min_size`.

    Raises:
        LabkitError: it is no module with weights. The message names `argument` ("generator" or "discriminator").
    """
    if not isinstance(network, nn.Module) or next(network.parameters(), None) is None:
        raise LabkitError(
            f"{argument}={network!r:.60}: give a name, or an nn.Module with weights to train (call its class)."
        )
    copied = copy.deepcopy(network)
    for name, usual in USUAL.items():
        setattr(copied, name, getattr(copied, name, usual))
    return copied


@torch.no_grad()
def check_translates(network: nn.Module, picture: Tensor) -> None:
    """Tries the custom generator G_A on one picture, (1, 3, H, W), and leaves the random numbers as they were.

    Raises:
        LabkitError: the result is no picture of the same size, so the losses would be wrong.
    """
    with torch.random.fork_rng([picture.device] if picture.is_cuda else []):
        result = copy.deepcopy(network).eval()(picture)
    if not isinstance(result, Tensor) or result.shape != picture.shape:
        raise LabkitError(
            f"G_A ({type(network).__name__}) turns a picture of shape {tuple(picture.shape)} into "
            f"{tuple(result.shape) if isinstance(result, Tensor) else type(result)}, not one of the same shape. If it "
            "takes fewer sizes, name them in its class: size_multiple = 32 for multiples of 32, and min_size."
        )
