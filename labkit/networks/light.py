"""Lighter ResNet generators: narrower everywhere, or with cheaper blocks in the middle, where most of the work is.

Each has the shapes of `ResnetGenerator`, and all but the narrow one its convolutions down and up. (The shallower
generators are "resnet_6blocks" and "resnet_3blocks".) FLOPs fall further than time, as
notebook 08 shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from labkit.networks.layers import Generator, norm_layer
from labkit.networks.resnet import ResidualBlock, ResnetGenerator, Skip

GROUPS = 4  # divides the channels of the blocks, which are four times the width
EXPANSION = 4  # how many times more channels an inverted residual block has inside than outside
SQUEEZE = 4  # how many times fewer channels decide about the gates than there are outside


def separable_block(channels: int, norm: str = "instance") -> Skip:
    """A residual block whose convolutions are depthwise separable: 3x3 in each channel, then 1x1 across them.

    Source: Howard et al. 2017 ("MobileNets"), section 3.1. Nothing is between the two, as in Chollet 2017 ("Xception").
    """
    bias = norm == "instance"

    def separable() -> list[nn.Module]:
        return [
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=bias),
            norm_layer(norm, channels),
        ]

    return Skip(*separable(), nn.ReLU(True), *separable())


def grouped_block(channels: int, norm: str = "instance") -> Skip:
    """A residual block whose convolutions see a quarter of the channels each, shuffled between them.

    Without the shuffle no channel would ever depend on channels of other groups. Source: Zhang et al. 2018
    ("ShuffleNet").
    """
    bias = norm == "instance"
    return Skip(
        nn.ReflectionPad2d(1),
        nn.Conv2d(channels, channels, 3, groups=GROUPS, bias=bias),
        norm_layer(norm, channels),
        nn.ReLU(True),
        nn.ChannelShuffle(GROUPS),
        nn.ReflectionPad2d(1),
        nn.Conv2d(channels, channels, 3, groups=GROUPS, bias=bias),
        norm_layer(norm, channels),
    )


class SqueezeExcitation(nn.Module):
    """A gate between 0 and 1 for each channel, decided in `squeezed` channels from the means of all.

    Shapes: (B, channels, H, W) in and out. Source: Hu et al. 2018, but with SiLU, as in Tan, Le 2019 ("EfficientNet"):
    after instance norm the means hardly differ from picture to picture, so a ReLU that is off would stay off.
    """

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(True),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def inverted_block(channels: int, norm: str = "instance") -> Skip:
    """Many channels inside, few outside: 1x1 up, depthwise 3x3, gates by squeeze-and-excitation, 1x1 down.

    Source: Howard et al. 2019 ("MobileNetV3"), figure 4, with the gates of Tan, Le 2019 ("EfficientNet").
    """
    bias, inner = norm == "instance", EXPANSION * channels
    return Skip(
        nn.Conv2d(channels, inner, 1, bias=bias),
        norm_layer(norm, inner),
        nn.Hardswish(True),
        nn.ReflectionPad2d(1),
        nn.Conv2d(inner, inner, 3, groups=inner, bias=bias),
        norm_layer(norm, inner),
        nn.Hardswish(True),
        SqueezeExcitation(inner, channels // SQUEEZE),
        nn.Conv2d(inner, channels, 1, bias=bias),
        norm_layer(norm, channels),
    )


def tapered_generator(width: int, **rest: Any) -> ResnetGenerator:
    """Nine blocks with fewer and fewer channels inside: all of them in the first block, a quarter in the last."""
    inner = iter([4 * width - block * 3 * width // 8 for block in range(9)])
    return ResnetGenerator(9, width, block=lambda channels, norm: ResidualBlock(channels, norm, next(inner)), **rest)


LIGHT: dict[str, Callable[..., Generator]] = {
    "resnet_9blocks_narrow": lambda width, **rest: ResnetGenerator(9, max(1, width // 2), **rest),
    "resnet_9blocks_tapered": tapered_generator,
    "resnet_9blocks_separable": partial(ResnetGenerator, 9, block=separable_block),
    "resnet_9blocks_grouped": partial(ResnetGenerator, 9, block=grouped_block),
    "resnet_9blocks_inverted": partial(ResnetGenerator, 9, block=inverted_block),
}
