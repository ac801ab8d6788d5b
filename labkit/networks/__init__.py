"""Generators that translate pictures, and discriminators that judge them."""

from labkit.networks.codes import scaled
from labkit.networks.generators import make_generator
from labkit.networks.layers import initialise
from labkit.networks.light import grouped_block, inverted_block, separable_block
from labkit.networks.resnet import ResidualBlock, ResnetGenerator, Skip

__all__ = [
    "ResidualBlock",
    "ResnetGenerator",
    "Skip",
    "grouped_block",
    "initialise",
    "inverted_block",
    "make_generator",
    "scaled",
    "separable_block",
]
