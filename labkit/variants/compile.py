"""compile: torch.compile turns each network into fewer, fused kernels."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Any

import torch

from labkit.models.model import Model
from labkit.variants import SpeedUp


def compiler() -> str | None:
    """The C++ compiler that `torch.compile` finds for a CPU, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++"), "clang++", "cl"))), None)


def why_no_triton() -> str | None:
    """The reason why Triton cannot compile kernels for a GPU here, or None if it can."""
    if importlib.util.find_spec("triton") is None:
        return "its kernels need Triton: pip install triton, or leave it out"
    if not any(map(shutil.which, (os.environ.get("CC", "gcc"), "clang"))):
        return "Triton needs a C compiler, and there is none here: install gcc, or leave it out"
    return None


class Compile(SpeedUp):
    """Compiles each network, forward and backward, with `torch.compile`.

    Differs from the baseline in one seam, `build`. Each network by itself, not the whole step: that would fall into
    pieces at the backward pass, and lose the ranges around its seams. In place, with `nn.Module.compile`: the names in
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
    def why_unsuited(cls, model: Model) -> str | None:
        if next(model.parameters()).is_cuda:
            return why_no_triton()
        if compiler() is None:
            return "compiling for a CPU needs a C++ compiler, and there is none here: install g++, or leave it out"
        return None

    @classmethod
    def why_untried(cls, model: Model) -> str | None:
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
