"""Generators by name, and the U-Nets among them: a picture in, a picture of the same size out.

Architecture and state_dict names are those of the public reference (github.com/junyanz/pytorch-CycleGAN-and-pix2pix),
so that checkpoints published for it load.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError
from labkit.networks.layers import NORMS, Generator, custom_copy, initialise, norm_layer
from labkit.networks.light import LIGHT
from labkit.networks.resnet import ResnetGenerator
from labtrace.errors import check_at_least, check_known


class UnetGenerator(Generator):
    """Halve the picture `halvings` times down to one pixel, then double it back, each level beside its skip.

    Shapes: (B, C, H, W) in [-1, 1] in and out, with the two numbers of `channels`. H and W are multiples of
    2**halvings. Source: Isola et al. 2017, appendix 6.1.1, without dropout, as the reference uses it for CycleGAN.
    """

    def __init__(self, halvings: int = 8, width: int = 64, norm: str = "instance", channels: tuple[int, int] = (3, 3)):
        super().__init__()
        self.channels = channels[0]
        self.size_multiple = self.min_size = 2**halvings
        level = UnetLevel(8 * width, 8 * width, None, norm)
        for _ in range(halvings - 5):
            level = UnetLevel(8 * width, 8 * width, level, norm)
        for outer in (4 * width, 2 * width, width):
            level = UnetLevel(outer, 2 * outer, level, norm)
        self.model = UnetLevel(channels[1], width, level, norm, outermost_in=channels[0])
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class UnetLevel(nn.Module):
    """One level of the U: halve, run the levels inside, double. Its input is passed on beside the result.

    Shapes: (B, outer, H, W) in, (B, 2 * outer, H, W) out. The outermost level takes (B, outermost_in, H, W) and gives
    (B, outer, H, W). The LeakyReLU works in place, so the skip carries its result, as in the reference.
    """

    def __init__(self, outer: int, inner: int, inside: UnetLevel | None, norm: str, outermost_in: int | None = None):
        super().__init__()
        self.outermost = outermost = outermost_in is not None
        bias = norm == "instance"
        doubled = inner if inside is None else 2 * inner  # the level inside brings its skip along
        halve = nn.Conv2d(outermost_in or outer, inner, 4, 2, 1, bias=bias)
        double = nn.ConvTranspose2d(doubled, outer, 4, 2, 1, bias=bias or outermost)
        layers: list[nn.Module]
        if inside is None:
            layers = [nn.LeakyReLU(0.2, True), halve, nn.ReLU(True), double, norm_layer(norm, outer)]
        elif outermost:
            layers = [halve, inside, nn.ReLU(True), double, nn.Tanh()]
        else:
            down = [nn.LeakyReLU(0.2, True), halve, norm_layer(norm, inner)]
            layers = [*down, inside, nn.ReLU(True), double, norm_layer(norm, outer)]
        self.model = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) if self.outermost else torch.cat([x, self.model(x)], dim=1)


GENERATORS: dict[str, Callable[..., Generator]] = {
    **{f"resnet_{blocks}blocks": partial(ResnetGenerator, blocks) for blocks in (9, 6, 3)},
    **{f"resnet_{blocks}blocks_resize": partial(ResnetGenerator, blocks, resize=True) for blocks in (9, 6, 3)},
    "unet_256": partial(UnetGenerator, 8),
    "unet_128": partial(UnetGenerator, 7),
    **LIGHT,
}


def make_generator(
    network: str | nn.Module, width: int = 64, norm: str = "instance", channels: tuple[int, int] = (3, 3)
) -> Generator:
    """The generator of this name, with `width` filters in its first layer, or a copy of a custom one.

    `channels` are those of the pictures that go in, and of those that come out.

    Raises:
        LabkitError: the name or the norm is unknown, the two do not go together, there are no filters or channels, or a
            custom network has no weights.
    """
    if not isinstance(network, str):
        return custom_copy("generator", network, channels[0])
    check_known("generator", network, GENERATORS)
    check_known("norm", norm, NORMS)
    check_at_least(1, ngf=width, channels=min(channels))
    if norm == "instance_blocks" and network.startswith("unet"):
        raise LabkitError(f"norm='instance_blocks': {network} has no residual blocks. Use 'instance', or a resnet.")
    return GENERATORS[network](width=width, norm=norm, channels=channels)
