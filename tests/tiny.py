"""The smallest networks that a test trains."""

import pytest
import torch
from torch import nn

from labkit.data.images import write_picture
from labkit.networks import ResnetGenerator

TINY = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)


def assert_close(losses, right, tolerance, where):
    """Compares the losses of a step with the right ones, by name."""
    for name, loss in right.items():
        assert float(losses[name]) == pytest.approx(float(loss), rel=tolerance), (name, where)


def one_block(norm):
    """A ResNet of one block, always with the same weights."""
    torch.manual_seed(0)
    return ResnetGenerator(1, 4, norm)


def album_of(folder, n, height, width, places=("trainA", "trainB")):
    """A folder with so many pictures of noise in each of its folders, always the same."""
    for place in places:
        for k in range(n):
            picture = torch.randint(256, (3, height, width), generator=torch.Generator().manual_seed(k))
            write_picture(picture.to(torch.uint8), folder / place / f"{k}.png")
    return folder


def two_layers():
    """A generator for tests of what is around it, several times as fast as the tiny one; always the same weights."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1)
    return nn.Sequential(first, nn.InstanceNorm2d(2), nn.ReLU(True), second, nn.Tanh())
