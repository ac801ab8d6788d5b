"""The smallest networks that a test trains."""

import torch
from torch import nn

from labkit.networks import ResnetGenerator

TINY = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)


def one_block(norm):
    """A ResNet of one block, always with the same weights."""
    torch.manual_seed(0)
    return ResnetGenerator(1, 4, norm)


def two_layers():
    """A generator for tests of what is around it, several times as fast as the tiny one; always the same weights."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1)
    return nn.Sequential(first, nn.InstanceNorm2d(2), nn.ReLU(True), second, nn.Tanh())
