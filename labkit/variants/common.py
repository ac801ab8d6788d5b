"""Shared by several speed-ups: fused Adam, casts, and the reasons why a model does not suit them."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from labkit import devices
from labkit.models.cyclegan import CycleGAN
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.networks.layers import batch_matters


class SpeedUp(Step):
    """The base of labkit's speed-ups, each a class in a file of its own that overrides seams of a step.

    A speed-up may not change *what* is computed: tests/test_speedups.py compares each, and every pair, with the
    baseline. Its docstring says how it differs, which part of a step's time it should reduce, and when it does not
    help.
    """

    name: str
    changes: str  # how it differs from the baseline
    improves: str  # the part of a step's time, or of its memory, that should get smaller
    needs: str  # device, companions, and speed-ups it cannot be combined with
    tolerance: str  # "exact", or "16-bit" for rounding to 16 bits
    excludes: Mapping[str, str] = MappingProxyType({})  # names it cannot be combined with, and why

    @staticmethod
    def unsuited(model: Model) -> str | None:
        """Why it cannot be used with this model, on the device it is on; None if it can."""
        return None

    @staticmethod
    def emulated(model: Model) -> str | None:
        """Why it is slow on the device the model is on, which only emulates its arithmetic; None if it is not."""
        return None

    @staticmethod
    def inactive(model: Model) -> str | None:
        """Why it changes nothing on the device the model is on, though it does no harm there; None if it acts."""
        return None

    @staticmethod
    def skip_in_autotune(model: Model) -> str | None:
        """Why `labkit.autotune` should not try it to save time; None if it should."""
        return None


class NeedsFusedAdam(SpeedUp):
    """A speed-up with which Adam must be fused: it then reads everything that changes between steps on the device."""

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "fused": True}


class Compiling(SpeedUp):
    """A speed-up that has PyTorch compile networks, or parts of them."""

    backend = "inductor"

    @staticmethod
    def unsuited(model: Model) -> str | None:
        if next(model.parameters()).is_cuda:
            if importlib.util.find_spec("triton") is None:
                return "compiling for a GPU needs Triton: pip install triton, or leave it out"
        elif not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++", "cl"))):
            return "compiling for a CPU needs a C++ compiler, and there is none here: install g++, or leave it out"
        return None

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        from torch._dynamo import config as dynamo_config  # takes a while to import

        # By default PyTorch goes back to eager once it has seen 8 variants (size, type, with gradient or without) of a
        # network's code, and counts those of all models in the process together.
        dynamo_config.recompile_limit = max(64, dynamo_config.recompile_limit)
        self.compile()
        return super().build(betas)

    def compile(self) -> None:
        """Sets what is to be compiled when it first runs."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.compile()  # a copy of a module is not compiled


def only_emulated(model: Model, dtype: torch.dtype) -> str | None:
    """Why a 16-bit type makes a step slower on this model's device; None if the device computes in it."""
    if next(model.parameters()).device.type != "cpu" or not devices.emulates(dtype):
        return None
    name = str(dtype).removeprefix("torch.")
    return f"this processor only emulates {name}, which is slower than float32"


def without_cycles(model: Model) -> str | None:
    """Why a speed-up of the two cycles cannot be used with a model that has none; None if it has them."""
    return None if isinstance(model, CycleGAN) else f"it changes how CycleGAN's two cycles run; {model.kind} has none"


def has_batch_norm(model: nn.Module) -> bool:
    """Whether some layer normalises over the whole batch, so that it matters which pictures pass together."""
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())


def own_network_mixes(model: Model) -> str | None:
    """Why it matters for a network of the caller's own which pictures pass together, or how often; None if not."""
    reasons = (batch_matters(getattr(model, name)) for name in model.own)
    return next((reason for reason in reasons if reason), None)


def has_dropout(model: nn.Module) -> bool:
    """Whether some layer drops values at random, so that a pass depends on random numbers."""
    return any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules())


def no_shared_casts(device: str) -> AbstractContextManager:
    """Autocast as it is on this type of device ("cuda"), on or off, but without its cache of cast weights."""
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=False)
