"""ResNet generators, and the residual block they are made of.

Architecture and state_dict names are those of the public reference (github.com/junyanz/pytorch-CycleGAN-and-pix2pix),
so that checkpoints published for it load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit.networks.layers import initialise, norm_layer


class ResidualBlock(nn.Module):
    """x + F(x): two reflection-padded 3x3 convolutions with normalisation, ReLU between them.

    Shapes: (B, channels, H, W) in and out, H and W at least 2. Source: Johnson et al. 2016, as used by
    Zhu et al. 2017 (appendix 7.2).
    """

    def __init__(self, channels: int, norm: str = "instance"):
        super().__init__()
        bias = norm == "instance"
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, bias=bias),
            norm_layer(norm, channels),
            nn.ReLU(True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3, bias=bias),
            norm_layer(norm, channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_block(x)


class ResnetGenerator(nn.Module):
    """Two strided convolutions down, `blocks` residual blocks at a quarter of the size, two transposed ones up.

    Shapes: (B, 3, H, W) in [-1, 1] in and out; H and W multiples of 4, at least 8. Source: Zhu et al. 2017,
    appendix 7.2.

    `norm="instance_blocks"` normalises inside the residual blocks only, so that the absolute colour of a
    background survives. The layers without normalisation then start from Kaiming weights, and the last one at
    0.3 of them, or tanh saturates at once.
    """

    multiple, least = 4, 8

    def __init__(self, blocks: int = 9, width: int = 64, norm: str = "instance"):
        super().__init__()
        outside, inside = ("none", "instance") if norm == "instance_blocks" else (norm, norm)
        bias = norm in ("instance", "instance_blocks")

        def normalised(convolution: nn.Module) -> list[nn.Module]:
            return [convolution, norm_layer(outside, convolution.out_channels), nn.ReLU(True)]

        down = dict(kernel_size=3, stride=2, padding=1, bias=bias)
        up = dict(kernel_size=3, stride=2, padding=1, output_padding=1, bias=bias)
        self.model = nn.Sequential(
            nn.ReflectionPad2d(3),
            *normalised(nn.Conv2d(3, width, 7, bias=bias)),
            *normalised(nn.Conv2d(width, 2 * width, **down)),
            *normalised(nn.Conv2d(2 * width, 4 * width, **down)),
            *self.make_blocks(blocks, 4 * width, inside),
            *normalised(nn.ConvTranspose2d(4 * width, 2 * width, **up)),
            *normalised(nn.ConvTranspose2d(2 * width, width, **up)),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, 3, 7),
            nn.Tanh(),
        )
        initialise(self)
        if norm == "instance_blocks":
            self._initialise_outside_the_blocks()

    def make_blocks(self, blocks: int, channels: int, norm: str) -> list[nn.Module]:
        """The blocks in the middle, each (B, channels, h, w) in and out."""
        return [ResidualBlock(channels, norm) for _ in range(blocks)]

    def _initialise_outside_the_blocks(self) -> None:
        convolutions = [layer for layer in self.model if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))]
        for convolution in convolutions:
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        with torch.no_grad():
            convolutions[-1].weight.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)
