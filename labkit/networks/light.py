"""Lighter ResNet generators: narrower everywhere, or with cheaper blocks in the middle, where most of the work is.

Each has the shapes of `ResnetGenerator`, and those with other blocks its way down and its way up. (Shallower ones are
"resnet_6blocks" and "resnet_3blocks".) FLOPs fall further than time: `labkit.simulate.network_costs` shows both.
"""

from __future__ import annotations

from torch import Tensor, nn

from labkit.networks.layers import norm_layer
from labkit.networks.resnet import ResnetGenerator

GROUPS = 4  # divides the channels of the blocks, which are four times the width
EXPANSION = 4  # how many times more channels an inverted residual block has inside than outside
SQUEEZE = 4  # how many times fewer channels decide about the gates than there are outside


class Skip(nn.Module):
    """x + F(x), with F these layers: (B, channels, H, W) in and out."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.conv_block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_block(x)


def tapered_block(channels: int, inner: int, norm: str = "instance") -> Skip:
    """A residual block with only `inner` channels between its two 3x3 convolutions."""
    bias = norm == "instance"
    return Skip(
        nn.ReflectionPad2d(1),
        nn.Conv2d(channels, inner, 3, bias=bias),
        norm_layer(norm, inner),
        nn.ReLU(True),
        nn.ReflectionPad2d(1),
        nn.Conv2d(inner, channels, 3, bias=bias),
        norm_layer(norm, channels),
    )


def separable_block(channels: int, norm: str = "instance") -> Skip:
    """A residual block whose convolutions are depthwise separable: 3x3 in each channel, then 1x1 across them.

    Source: Howard et al. 2017 ("MobileNets"), section 3.1; nothing is between the two, as in Chollet 2017 ("Xception").
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

    Without the shuffle no channel would ever hear of those in other groups. Source: Zhang et al. 2018 ("ShuffleNet").
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

    Shapes: (B, channels, H, W) in and out. Source: Hu et al. 2018; with SiLU, as in Tan, Le 2019 ("EfficientNet"):
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


class TaperedGenerator(ResnetGenerator):
    """Blocks with fewer and fewer channels inside: all of them in the first block, a quarter in the last."""

    def make_blocks(self, blocks: int, channels: int, norm: str) -> list[nn.Module]:
        inner = [channels - block * (channels - channels // 4) // (blocks - 1) for block in range(blocks)]
        return [tapered_block(channels, width, norm) for width in inner]


class SeparableGenerator(ResnetGenerator):
    """Blocks of depthwise separable convolutions."""

    def make_blocks(self, blocks: int, channels: int, norm: str) -> list[nn.Module]:
        return [separable_block(channels, norm) for _ in range(blocks)]


class GroupedGenerator(ResnetGenerator):
    """Blocks of grouped convolutions."""

    def make_blocks(self, blocks: int, channels: int, norm: str) -> list[nn.Module]:
        return [grouped_block(channels, norm) for _ in range(blocks)]


class InvertedGenerator(ResnetGenerator):
    """Inverted residual blocks."""

    def make_blocks(self, blocks: int, channels: int, norm: str) -> list[nn.Module]:
        return [inverted_block(channels, norm) for _ in range(blocks)]


LIGHT = {
    "resnet_9blocks_narrow": lambda width, norm: ResnetGenerator(9, max(1, width // 2), norm),
    "resnet_9blocks_tapered": lambda width, norm: TaperedGenerator(9, width, norm),
    "resnet_9blocks_separable": lambda width, norm: SeparableGenerator(9, width, norm),
    "resnet_9blocks_grouped": lambda width, norm: GroupedGenerator(9, width, norm),
    "resnet_9blocks_inverted": lambda width, norm: InvertedGenerator(9, width, norm),
}
