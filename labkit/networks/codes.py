"""Networks around codes: pictures in, codes at a quarter of the size, codes translated and judged, pictures out.

Source: the article's "single generator" for CycleGAN. `labkit.DeviationGAN` lists the choices that it leaves open.
"""

from __future__ import annotations

from torch import Tensor, nn

from labkit.networks.layers import Generator, initialise, initialise_unnormalised
from labkit.networks.resnet import ResidualBlock


class Encoder(nn.Module):
    """A ResNet generator's way down, without normalisation: a picture becomes a code.

    Shapes: (B, 3, H, W) in [-1, 1] -> (B, 4 * width, H / 4, W / 4). H and W are multiples of 4.

    Instance norm would take the absolute colours out of a code, and the decoder could not put them back.
    """

    def __init__(self, width: int = 64):
        super().__init__()
        self.model = nn.Sequential(
            nn.ReflectionPad2d(3),
            nn.Conv2d(3, width, 7),
            nn.ReLU(True),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(True),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
        )
        initialise_unnormalised(self.model)

    def forward(self, picture: Tensor) -> Tensor:
        return self.model(picture)


class Decoder(nn.Module):
    """Lighter than a ResNet generator's way up: half the channels, a 3x3 convolution at the end, no normalisation.

    Shapes: (B, 4 * width, H / 4, W / 4) -> (B, 3, H, W) in [-1, 1]. `width` is at least 2.
    """

    def __init__(self, width: int = 64):
        super().__init__()
        self.model = nn.Sequential(
            nn.ConvTranspose2d(4 * width, width, 4, 2, 1),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
            nn.ReLU(True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(width // 2, 3, 3),
            nn.Tanh(),
        )
        initialise_unnormalised(self.model)

    def forward(self, code: Tensor) -> Tensor:
        return self.model(code)


class Translator(nn.Module):
    """z + R(z): residual blocks and a 1x1 convolution, which starts at zero, so that nothing is changed at first.

    Shapes: (B, channels, h, w) in and out.
    """

    def __init__(self, channels: int, blocks: int = 9):
        super().__init__()
        self.blocks = nn.Sequential(*[ResidualBlock(channels) for _ in range(blocks)])
        self.change = nn.Conv2d(channels, channels, 1)
        initialise(self)
        nn.init.zeros_(self.change.weight)

    def forward(self, code: Tensor) -> Tensor:
        return code + self.change(self.blocks(code))


class CodeDiscriminator(nn.Module):
    """A PatchGAN without its first part, since a code has been halved twice already.

    Shapes: (B, channels, h, w) -> (B, 1, h / 2 - 2, w / 2 - 2), one unbounded verdict a patch.
    """

    def __init__(self, channels: int, width: int = 64):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(channels, 4 * width, 4, 2, 1),
            nn.InstanceNorm2d(4 * width),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(4 * width, 8 * width, 4, 1, 1),
            nn.InstanceNorm2d(8 * width),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(8 * width, 1, 4, 1, 1),
        )
        initialise(self)

    def forward(self, code: Tensor) -> Tensor:
        return self.model(code)


def scaled(code: Tensor) -> tuple[Tensor, Tensor]:
    """A code over its root mean square, and that, one number a picture: (B, C, h, w) -> the same and (B, 1, 1, 1).

    A translator works on scaled codes, so that a deviation loss has the same weight however large the codes are.
    """
    scale = code.square().mean((1, 2, 3), keepdim=True).sqrt().clamp(min=1e-6)
    return code / scale, scale


class CodeGenerator(Generator):
    """Encoder, translator of scaled codes, and decoder as one generator.

    Shapes: (B, 3, H, W) in [-1, 1] in and out. H and W are multiples of 4, at least 8.
    """

    size_multiple, min_size = 4, 8

    def __init__(self, encoder: nn.Module, translator: nn.Module, decoder: nn.Module):
        super().__init__()
        self.encoder, self.translator, self.decoder = encoder, translator, decoder

    def forward(self, picture: Tensor) -> Tensor:
        code, scale = scaled(self.encoder(picture))
        return self.decoder(scale * self.translator(code))
