"""Shared by generators and discriminators: normalisation, initial weights, base classes, and custom networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from labkit.errors import explained

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
    return getattr(network, CHANNELS if hasattr(network, CHANNELS) else "channels", 3)


class Discriminator(nn.Module):
    """A network that judges pictures, (B, C, H, W) in [-1, 1], H and W at least `min_size`: unbounded verdicts."""

    min_size: int


# ---- custom networks, of which `labkit.CycleGAN` trains two copies

CUSTOM = "own: "  # begins the name that a custom network has in settings and checkpoints
CHANNELS = "picture_channels"  # of a custom network, whose attribute `channels` may mean something else
USUAL = {"size_multiple": 4, "min_size": 16}  # most halve the picture twice; smaller ones leave nothing to judge
PLAIN = "Give a name, or a bare nn.Module (call its class) of float32 on one device that copy.deepcopy can copy."
LEARNS = "Return one tensor with a gradient, a generator one like its input; change no input; torch.cat verdicts."


def custom_copy(argument: str, network: Any, channels: int = 3) -> Any:
    """A copy of a custom network, which takes pictures of so many channels, with `size_multiple` and `min_size`.

    Raises:
        LabkitError: it cannot be copied or trained. The message names `argument` ("generator" or "discriminator").
    """
    with explained(f"{argument}={network!r:.60}", PLAIN):
        copied, sizes = copy.deepcopy(network), {name: getattr(network, name, usual) for name, usual in USUAL.items()}
        weights = [each for each in copied.parameters() if each.is_leaf]  # those of a scripted network are none
        kinds = {f"{'lazy ' * is_lazy(each)}{each.dtype} on {each.device}" for each in weights}
        default = torch.get_default_dtype()  # another one if float32 was it when the network was made
        right = len(kinds) == 1 and min(kinds).startswith((str(default), "torch.float32")) and math.lcm(*sizes.values())
        if not right or isinstance(network, nn.DataParallel) or hasattr(network, "_orig_mod"):  # of torch.compile
            raise TypeError(f"a {type(network).__name__} with weights of {' and '.join(kinds) or 'none'}, {sizes}")
    for name, value in {**sizes, CHANNELS: channels}.items():
        vars(copied).setdefault(name, value)
    return copied if weights[0].dtype == default else copied.to(default)


def check_custom(name: str, network: Any, pictures: Tensor) -> None:
    """Tries a custom network on pictures (B, C, H, W). It and the random numbers stay as they were.

    Raises:
        LabkitError: it cannot learn from these pictures.
    """
    tried, picture = copy.deepcopy(network), pictures.clone().requires_grad_()
    with torch.random.fork_rng([pictures.device] if pictures.is_cuda else []):
        with explained(f"{name} ({type(network).__name__}) on pictures of shape {tuple(pictures.shape)}", LEARNS):
            result = tried(picture)
            result.sum().backward()  # not autograd.grad, in which checkpointing fails
            other = result.shape != picture.shape and name == "G_A"
            if other or picture.grad is None or result.dtype != picture.dtype:
                raise TypeError(f"it returns {result.dtype} of shape {tuple(result.shape)}")
