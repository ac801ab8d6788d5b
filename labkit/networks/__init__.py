"""Generators that translate pictures, and discriminators that judge them."""

from labkit.networks.codes import scaled as scaled
from labkit.networks.generators import make_generator as make_generator
from labkit.networks.layers import initialise as initialise
from labkit.networks.light import grouped_block as grouped_block
from labkit.networks.light import inverted_block as inverted_block
from labkit.networks.light import separable_block as separable_block
from labkit.networks.resnet import ResidualBlock as ResidualBlock
from labkit.networks.resnet import ResnetGenerator as ResnetGenerator
from labkit.networks.resnet import Skip as Skip
