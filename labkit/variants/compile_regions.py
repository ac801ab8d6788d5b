"""compile_regions: torch.compile for a generator piece by piece, so that residual blocks share one compiled piece."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from labkit.models.model import Model
from labkit.networks.resnet import ResnetGenerator, Skip
from labkit.variants.common import Compiling


class CompileRegions(Compiling):
    """Compiles the layers before, between and after the residual blocks, and one block for all of them.

    Differs from "compile" in the size of the pieces. To compile takes time for every layer, and a ResNet generator's
    nine blocks are the same program with other weights: compiled once, it serves all. PyTorch calls this regional
    compilation. Discriminators, which have no blocks, stay as they are.

    Improves: memory traffic, as "compile" does, but within a region only; the first step starts several times sooner.
    Does not help on a GPU that waits for the host: each region is called from Python. The model keeps its regions.
    """

    name = "compile_regions"
    changes = "generators are compiled in regions, their residual blocks once"
    improves = "memory traffic"
    needs = "a ResNet generator, and what compile needs"
    tolerance = "exact"
    excludes = {
        "compile": "each compiles the generators",
        "channels_last": "the compiler chooses memory formats itself",
        "two_devices": "the moves between the GPUs would be compiled into the networks",
    }

    @staticmethod
    def unsuited(model: Model) -> str | None:
        if not any(isinstance(network, ResnetGenerator) for network in model.children()):
            return "no network is a ResNet generator, whose blocks could share a compiled one: take 'compile'"
        return Compiling.unsuited(model)

    @staticmethod
    def skip_in_autotune(model: Model) -> str | None:
        on_gpu = next(model.parameters()).is_cuda
        return "compile has fewer calls" if on_gpu else "compiling takes half a minute before the first step"

    def compile(self) -> None:
        for network in self.model.children():
            if isinstance(network, ResnetGenerator):
                network.model.__class__ = InRegions


class InRegions(nn.Sequential):
    """The same layers, run region by region."""

    def forward(self, picture: Tensor) -> Tensor:
        run = compiled_run(CompileRegions.backend)
        for layers in self.regions():
            picture = run(layers, picture)
        return picture

    def regions(self) -> Iterator[Sequence[nn.Module]]:
        """Each residual block by itself, and the rows of other layers."""
        for blocks, layers in groupby(self, key=lambda layer: isinstance(layer, Skip)):
            group = tuple(layers)
            yield from [(block,) for block in group] if blocks else [group]


def run(layers: Sequence[nn.Module], picture: Tensor) -> Tensor:
    """A picture through layers, one after another: (B, C, H, W) in and out."""
    for layer in layers:
        picture = layer(picture)
    return picture


@functools.cache
def compiled_run(backend: str) -> Callable[[Sequence[nn.Module], Tensor], Tensor]:
    """One compiled `run` for all models: what it has compiled once, for some kinds of layers and a size, it knows."""
    return torch.compile(run, backend=backend, dynamic=False)
