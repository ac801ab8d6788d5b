"""compile and compile_regions: torch.compile turns networks, or pieces of generators, into fewer, fused kernels."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from labkit.models.model import Model
from labkit.networks.resnet import ResnetGenerator, Skip
from labkit.variants import SpeedUp


class Compile(SpeedUp):
    """Compiles each network, forward and backward, with `torch.compile`.

    Differs from the baseline in one seam, `build`. Each network by itself, not the whole step: that would fall into
    pieces at the backward pass, and lose the ranges round its seams. In place, with `nn.Module.compile`: the names in
    checkpoints stay, and the model stays compiled in other steps made from it.

    Improves: memory traffic and launches, since normalisation, activation and padding are fused. Does not help in short
    runs: the first step takes minutes, and so does the first one with pictures of another size or number, and
    convolutions, most of the work, stay the library's.
    """

    name = "compile"
    changes = "the networks are compiled"
    improves = "memory traffic, launches"
    needs = "Triton on a GPU, a C++ compiler on a CPU"
    backend = "inductor"

    @classmethod
    def unsuited(cls, model: Model) -> str | None:
        if next(model.parameters()).is_cuda:
            if importlib.util.find_spec("triton") is None:
                return "compiling for a GPU needs Triton: pip install triton, or leave it out"
        elif not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++", "cl"))):
            return "compiling for a CPU needs a C++ compiler, and there is none here: install g++, or leave it out"
        return None

    @classmethod
    def skip_in_autotune(cls, model: Model) -> str | None:
        return None if next(model.parameters()).is_cuda else "compiling for a CPU takes long before the first step"

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        from torch._dynamo import config as dynamo_config  # takes a while to import

        # By default PyTorch goes back to eager once it has seen 8 variants (size, type, with gradient or without) of a
        # network's code, and counts those of all models in the process together.
        dynamo_config.recompile_limit = max(64, dynamo_config.recompile_limit)
        self.compile()
        return super().build(betas)

    def compile(self) -> None:
        """Sets what is to be compiled when it first runs."""
        for network in self.model.children():
            network.compile(backend=self.backend, dynamic=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.compile()  # a copy of a module is not compiled


class CompileRegions(Compile):
    """Compiles the layers before, between and after the residual blocks, and one block for all of them.

    Differs from "compile" in the size of the pieces. To compile takes time for every layer, and a ResNet generator's
    nine blocks are the same program with other weights: compiled once, it serves all. PyTorch calls this regional
    compilation. Discriminators, which have no blocks, stay as they are.

    Improves: memory traffic, as "compile" does, but within a region only. The first step starts several times sooner.
    Does not help on a GPU that waits for the host: each region is called from Python. The model keeps its regions.
    """

    name = "compile_regions"
    changes = "generators are compiled in regions, their residual blocks once"
    improves = "memory traffic"
    needs = "a ResNet generator, and what compile needs"
    excludes = {
        "compile": "each compiles the generators",
        "channels_last": "the compiler chooses memory formats itself",
        "two_devices": "the moves between the GPUs would be compiled into the networks",
    }

    @classmethod
    def unsuited(cls, model: Model) -> str | None:
        if not any(isinstance(network, ResnetGenerator) for network in model.children()):
            return "no network is a ResNet generator, whose blocks could share a compiled one: take 'compile'"
        return super().unsuited(model)

    def compile(self) -> None:
        for network in self.model.children():
            if isinstance(network, ResnetGenerator):
                network.model.__class__ = InRegions


class InRegions(nn.Sequential):
    """The same layers, run region by region: each residual block by itself, and the rows of other layers."""

    def forward(self, picture: Tensor) -> Tensor:
        run = compiled_run(CompileRegions.backend)
        for are_blocks, group in groupby(self, key=lambda layer: isinstance(layer, Skip)):
            layers = tuple(group)
            for region in [(block,) for block in layers] if are_blocks else [layers]:
                picture = run(region, picture)
        return picture


def run(layers: Sequence[nn.Module], picture: Tensor) -> Tensor:
    """A picture through layers, one after another: (B, C, H, W) in and out."""
    for layer in layers:
        picture = layer(picture)
    return picture


@functools.cache
def compiled_run(backend: str) -> Callable[[Sequence[nn.Module], Tensor], Tensor]:
    """One compiled `run` for all models: what it has compiled once, for some kinds of layers and a size, it knows."""
    return torch.compile(run, backend=backend, dynamic=False)
