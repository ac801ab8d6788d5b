"""Discriminators: a picture in, a map of verdicts out, one for each patch of the picture.

Architecture and state_dict names are those of the public reference (github.com/junyanz/pytorch-CycleGAN-and-pix2pix).
"""

from __future__ import annotations

from torch import Tensor, nn

from labkit.networks.layers import NORMS, Discriminator, custom_copy, initialise, norm_layer
from labtrace.errors import check_at_least, check_known

DISCRIMINATORS = ("basic", "n_layers", "pixel")


class PatchDiscriminator(Discriminator):
    """PatchGAN: 4x4 convolutions, `n_layers` of them with stride 2. With three, a verdict sees 70x70 pixels.

    Shapes: (B, channels, H, W) in [-1, 1] -> (B, 1, h, w), one unbounded verdict a patch, h about H / 2**n_layers. The
    first layer is not normalised. Source: Isola et al. 2017, appendix 6.1.2.
    """

    def __init__(self, n_layers: int = 3, width: int = 64, norm: str = "instance", channels: int = 3):
        super().__init__()
        self.min_size = 3 * 2**n_layers  # smaller pictures leave nothing to judge
        bias = norm == "instance"
        widths = [width * min(2**layer, 8) for layer in range(n_layers + 1)]
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for layer in range(1, n_layers + 1):
            stride = 2 if layer < n_layers else 1
            layers += [
                nn.Conv2d(widths[layer - 1], widths[layer], 4, stride, 1, bias=bias),
                norm_layer(norm, widths[layer]),
                nn.LeakyReLU(0.2, True),
            ]
        self.model = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4, 1, 1))
        initialise(self)

    def forward(self, picture: Tensor) -> Tensor:
        return self.model(picture)


class PixelDiscriminator(Discriminator):
    """Judges every pixel by itself, with 1x1 convolutions: (B, channels, H, W) in [-1, 1] -> (B, 1, H, W).

    Source: Isola et al. 2017, appendix 6.1.2 (the 1x1 "PixelGAN").
    """

    min_size = 2

    def __init__(self, width: int = 64, norm: str = "instance", channels: int = 3):
        super().__init__()
        bias = norm == "instance"
        self.net = nn.Sequential(
            nn.Conv2d(channels, width, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(width, 2 * width, 1, bias=bias),
            norm_layer(norm, 2 * width),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(2 * width, 1, 1, bias=bias),
        )
        initialise(self)

    def forward(self, picture: Tensor) -> Tensor:
        return self.net(picture)


def make_discriminator(
    network: str | nn.Module, width: int = 64, n_layers: int = 3, norm: str = "instance", channels: int = 3
) -> Discriminator:
    """The discriminator of this name, or a copy of a custom one.

    "basic" is a PatchGAN of three strided layers, "n_layers" one of `n_layers`, and "pixel" judges single pixels.
    `norm="instance_blocks"` speaks of residual blocks, which no discriminator has: it is instance norm here.

    Raises:
        LabkitError: the name or the norm is unknown, there are no layers or filters, or a custom network has no
            weights.
    """
    if not isinstance(network, str):
        return custom_copy("discriminator", network)
    check_known("discriminator", network, DISCRIMINATORS)
    check_known("norm", norm, NORMS)
    check_at_least(1, ndf=width, n_layers=n_layers, channels=channels)
    norm = "instance" if norm == "instance_blocks" else norm
    if network == "pixel":
        return PixelDiscriminator(width, norm, channels)
    return PatchDiscriminator(3 if network == "basic" else n_layers, width, norm, channels)
