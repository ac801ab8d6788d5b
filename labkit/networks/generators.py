"""Generators: a picture in, a picture of the same size out.

Architecture and state_dict names are those of the public reference (github.com/junyanz/pytorch-CycleGAN-and-pix2pix),
so that checkpoints published for it load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError, check_known
from labkit.networks.layers import NORMS, initialise, norm_layer


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
            *[ResidualBlock(4 * width, inside) for _ in range(blocks)],
            *normalised(nn.ConvTranspose2d(4 * width, 2 * width, **up)),
            *normalised(nn.ConvTranspose2d(2 * width, width, **up)),
            nn.ReflectionPad2d(3),
            nn.Conv2d(width, 3, 7),
            nn.Tanh(),
        )
        initialise(self)
        if norm == "instance_blocks":
            self._initialise_outside_the_blocks()

    def _initialise_outside_the_blocks(self) -> None:
        convolutions = [layer for layer in self.model if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))]
        for convolution in convolutions:
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        with torch.no_grad():
            convolutions[-1].weight.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class UnetGenerator(nn.Module):
    """Halve the picture `halvings` times down to one pixel, then double it back, each level beside its skip.

    Shapes: (B, 3, H, W) in [-1, 1] in and out; H and W multiples of 2**halvings. Source: Isola et al. 2017,
    appendix 6.1.1, without dropout, as the reference uses it for CycleGAN.
    """

    def __init__(self, halvings: int = 8, width: int = 64, norm: str = "instance"):
        super().__init__()
        self.multiple = self.least = 2**halvings
        level = UnetLevel(8 * width, 8 * width, None, norm)
        for _ in range(halvings - 5):
            level = UnetLevel(8 * width, 8 * width, level, norm)
        for outer in (4 * width, 2 * width, width):
            level = UnetLevel(outer, 2 * outer, level, norm)
        self.model = UnetLevel(3, width, level, norm, outermost=True)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class UnetLevel(nn.Module):
    """One level of the U: halve, do what lies inside, double; beside the result, what came in.

    Shapes: (B, outer, H, W) in, (B, 2 * outer, H, W) out; the outermost level gives (B, 3, H, W). The LeakyReLU
    works in place, so the skip carries its result, as in the reference.
    """

    def __init__(self, outer: int, inner: int, inside: UnetLevel | None, norm: str, outermost: bool = False):
        super().__init__()
        self.outermost = outermost
        bias = norm == "instance"
        doubled = inner if inside is None else 2 * inner  # the level inside brings its skip along
        halve = nn.Conv2d(outer, inner, 4, 2, 1, bias=bias)
        double = nn.ConvTranspose2d(doubled, outer, 4, 2, 1, bias=bias or outermost)
        if outermost:
            layers = [halve, inside, nn.ReLU(True), double, nn.Tanh()]
        elif inside is None:
            layers = [nn.LeakyReLU(0.2, True), halve, nn.ReLU(True), double, norm_layer(norm, outer)]
        else:
            down = [nn.LeakyReLU(0.2, True), halve, norm_layer(norm, inner)]
            layers = [*down, inside, nn.ReLU(True), double, norm_layer(norm, outer)]
        self.model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) if self.outermost else torch.cat([x, self.model(x)], dim=1)


GENERATORS = {
    "resnet_9blocks": lambda width, norm: ResnetGenerator(9, width, norm),
    "resnet_6blocks": lambda width, norm: ResnetGenerator(6, width, norm),
    "resnet_3blocks": lambda width, norm: ResnetGenerator(3, width, norm),
    "unet_256": lambda width, norm: UnetGenerator(8, width, norm),
    "unet_128": lambda width, norm: UnetGenerator(7, width, norm),
}


def make_generator(name: str, width: int = 64, norm: str = "instance") -> nn.Module:
    """The generator called `name`, with `width` filters in its first layer.

    Raises:
        LabkitError: the name or the norm is unknown, or the two do not go together.
    """
    check_known("generator", name, GENERATORS)
    check_known("norm", norm, NORMS)
    if norm == "instance_blocks" and name.startswith("unet"):
        raise LabkitError(
            f"norm='instance_blocks' means residual blocks, and {name} has none. "
            "Use norm='instance', or a resnet generator."
        )
    return GENERATORS[name](width, norm)
