"""compile: torch.compile turns each network into fewer, fused kernels."""

from __future__ import annotations

from labkit.models.model import Model
from labkit.variants.common import Compiling


class Compile(Compiling):
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
    tolerance = "exact"

    @staticmethod
    def skip_in_autotune(model: Model) -> str | None:
        return None if next(model.parameters()).is_cuda else "compiling for a CPU takes minutes before the first step"

    def compile(self) -> None:
        """Sets every network to be compiled when it first runs."""
        for network in self.model.children():
            network.compile(backend=self.backend, dynamic=False)
