"""subpixel: convolutions into very few channels compute two by two pixels at once."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.models.model import Model
from labkit.variants import Substitutes


class Subpixel(Substitutes):
    """Lets the last convolution of a ResNet generator, 7x7 into 3 channels, compute 2 x 2 pixels at a time.

    Differs from the baseline in one seam, `learn`: while it runs, such a layer is a convolution with stride 2 into
    four times the channels, whose filters are the layer's, shifted by 0 or 1 pixel, in a frame of zeros. A pixel
    shuffle puts its results side by side (Shi et al. 2016, section 3.2). The sums have the same terms.

    Improves: compute. A vector register of a CPU has room for 8 or 16 channels out, and 3 are there. Here it is 12, for
    8 x 8 in place of 7 x 7 multiplications. Does not help where the convolution has more channels, nor with pictures of
    odd sides, which are computed as before. Measured on CPUs only.
    """

    name = "subpixel"
    changes = "the convolution into 3 channels computes 2 x 2 pixels at once"
    improves = "compute"
    needs = "a ResNet generator"

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        if not any(map(_makes_pictures, model.modules())):
            return "no network ends with a large convolution of stride 1 without padding"
        return None

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        for layer in filter(_makes_pictures, self.model.modules()):
            self.forwards[layer] = functools.partial(four_pixels, layer)
        return super().build(betas)


def _makes_pictures(layer: nn.Module) -> bool:
    """True for a convolution into at most 3 channels, large enough to gain, and so none of "winograd"'s."""
    usual = dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    return (
        type(layer) is nn.Conv2d
        and usual.items() <= vars(layer).items()
        and layer.out_channels <= 3
        and min(layer.kernel_size) > 3
    )


def four_pixels(layer: Any, x: Tensor) -> Tensor:
    """The layer's convolution of x (N, C, H, W)."""
    height, width = layer.kernel_size
    if (x.shape[2] - height) % 2 == 0 or (x.shape[3] - width) % 2 == 0:  # an odd number of pixels out
        return type(layer).forward(layer, x)
    shifted = [F.pad(layer.weight, (right, 1 - right, down, 1 - down)) for down in (0, 1) for right in (0, 1)]
    weight = torch.stack(shifted, 1).flatten(0, 1)
    bias = None if layer.bias is None else layer.bias.repeat_interleave(4)
    return F.pixel_shuffle(F.conv2d(x, weight, bias, stride=2), 2)
