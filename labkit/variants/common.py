"""What a speed-up says of itself, for `labkit.speedups()` and `labkit.make_step`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import nn

from labkit.models.cyclegan import CycleGAN


class SpeedUp:
    """A speed-up is a class like this one in a file of its own, which overrides seams of `labkit.step.Step`.

    It does not derive from `Step` but is stacked on it, so that ``super().losses(...)`` is the next speed-up's seam,
    or at last the step's own. It may not change *what* is computed: tests/test_speedups.py holds each, and every
    pair, to the baseline. Its docstring says how it differs, what it should move, and when it does not help.
    """

    place: int  # in the stack: the lowest is outermost
    seam: str  # which methods it overrides
    changes: str  # what is different there
    moves: str  # which part of a step's time, or its memory, should get smaller
    needs: str  # device, companions, and what it cannot be combined with
    tolerance: str  # "exact", or "16-bit" for rounding to 16 bits
    excludes: Mapping[str, str] = MappingProxyType({})  # names it cannot be combined with, and why

    @staticmethod
    def unsuited(model: nn.Module) -> str | None:
        """Why it cannot be used with this model, on the device it is on; None if it can."""
        return None

    @staticmethod
    def inactive(model: nn.Module) -> str | None:
        """Why it changes nothing on the device the model is on, though it does no harm there; None if it acts."""
        return None

    @staticmethod
    def untried(model: nn.Module) -> str | None:
        """Why `labkit.choose` should not try it to save time; None if it should."""
        return None


class NeedsFusedAdam(SpeedUp):
    """A speed-up with which Adam must be fused: it then reads all that changes between steps on the device."""

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "fused": True}


def without_cycles(model: nn.Module) -> str | None:
    """Why a speed-up of the two cycles cannot be used with a model that has none; None if it has them."""
    return None if isinstance(model, CycleGAN) else f"it changes how CycleGAN's two cycles run; {model.kind} has none"


def has_batch_norm(model: nn.Module) -> bool:
    """Whether some layer normalises over the whole batch, so that it matters what is computed together."""
    return any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
