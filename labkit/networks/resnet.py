"""ResNet generators, and the residual block they are made of.

Architecture and state_dict names are those of the public reference (github.com/junyanz/pytorch-CycleGAN-and-pix2pix),
so that checkpoints published for it load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from labkit.networks.layers import Generator, initialise, initialise_unnormalised, norm_layer


class Skip(nn.Module):
    """x + F(x), with F these layers: (B, channels, H, W) in and out."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.conv_block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_block(x)


class ResidualBlock(Skip):
    """x + F(x): two reflection-padded 3x3 convolutions with normalisation, ReLU between them.

    Shapes: (B, channels, H, W) in and out, H and W at least 2. Between the convolutions there are `inner` channels, by
    default as many. Source: Johnson et al. 2016, as used by Zhu et al. 2017 (appendix 7.2).
    """

    def __init__(self, channels: int, norm: str = "instance", inner: int | None = None):
        inner, bias = inner or channels, norm == "instance"
        super().__init__(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, inner, 3, bias=bias),
            norm_layer(norm, inner),
            nn.ReLU(True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(inner, channels, 3, bias=bias),
            norm_layer(norm, channels),
        )


class ResnetGenerator(Generator):
    """Two strided convolutions down, `blocks` residual blocks at a quarter of the size, two transposed convolutions up.

    Shapes: (B, C, H, W) in [-1, 1] in and out, with the two numbers of `channels`. H and W are multiples of 4, at
    least 8. Source: Zhu et al. 2017, appendix 7.2.

    `norm="instance_blocks"` normalises inside the residual blocks only, so that the absolute colour of a
    background survives. The layers without normalisation then start from Kaiming weights, and the last layer from 0.3
    times these: otherwise tanh saturates in the first step.

    Each ``block(channels, norm)`` keeps its shape, (B, channels, h, w). `labkit.networks.light` has others.

    With `resize` each pixel is repeated twice in both directions, and a reflection-padded 3x3 convolution follows, in
    the place of a transposed convolution. One with stride 2 and 3x3 weights adds up 1, 2 or 4 products a pixel, by the
    pixel's place, and networks often leave a checkerboard of this. Source: Odena et al. 2016, "Deconvolution and
    Checkerboard Artifacts". The sums have four times as many terms; docs/training.md has what that costs and brings.
    """

    size_multiple, min_size = 4, 8

    def __init__(
        self,
        blocks: int = 9,
        width: int = 64,
        norm: str = "instance",
        block: Callable[[int, str], nn.Module] = ResidualBlock,
        channels: tuple[int, int] = (3, 3),
        resize: bool = False,
    ):
        super().__init__()
        self.channels = channels[0]
        outside, inside = ("none", "instance") if norm == "instance_blocks" else (norm, norm)
        bias = norm in ("instance", "instance_blocks")

        def normalised(convolution: nn.Conv2d | nn.ConvTranspose2d) -> list[nn.Module]:
            return [convolution, norm_layer(outside, convolution.out_channels), nn.ReLU(True)]

        down = partial(nn.Conv2d, kernel_size=3, stride=2, padding=1, bias=bias)

        def up(inside: int, outside: int) -> list[nn.Module]:
            if not resize:
                return normalised(nn.ConvTranspose2d(inside, outside, 3, 2, 1, output_padding=1, bias=bias))
            convolution = nn.Conv2d(inside, outside, 3, bias=bias)
            return [nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), *normalised(convolution)]

        self.model = nn.Sequential(
            nn.ReflectionPad2d(3),
            *normalised(nn.Conv2d(channels[0], width, 7, bias=bias)),
            *normalised(down(width, 2 * width)),
            *normalised(down(2 * width, 4 * width)),
            *(block(4 * width, inside) for _ in range(blocks)),
            *up(4 * width, 2 * width),
            *up(2 * width, width),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, channels[1], 7),
            nn.Tanh(),
        )
        initialise(self)
        if norm == "instance_blocks":
            initialise_unnormalised(self.model)  # not the blocks: they are one level below
            with torch.no_grad():
                self.model[-2].weight.mul_(0.3)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)
