"""Generators that translate pictures, and discriminators that judge them."""

from labkit.networks.codes import CodeDiscriminator, Decoder, Encoder, Translator, scaled
from labkit.networks.generators import GENERATORS, make_generator
from labkit.networks.layers import initialise, norm_layer
from labkit.networks.light import LIGHT, grouped_block, inverted_block, separable_block
from labkit.networks.patchgan import make_discriminator
from labkit.networks.resnet import ResidualBlock, ResnetGenerator, Skip

__all__ = [
    "GENERATORS",
    "LIGHT",
    "CodeDiscriminator",
    "Decoder",
    "Encoder",
    "ResidualBlock",
    "ResnetGenerator",
    "Skip",
    "Translator",
    "grouped_block",
    "initialise",
    "inverted_block",
    "make_discriminator",
    "make_generator",
    "norm_layer",
    "scaled",
    "separable_block",
]
