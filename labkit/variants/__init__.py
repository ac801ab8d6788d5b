"""The speed-ups: one file each, a small named difference to the baseline step. Here is their base.

`labkit.variants.registry` lists them in the order in which they stack, and makes a step of a model and some of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_layer
from torch.nn.utils import parametrizations
from torch.nn.utils.spectral_norm import SpectralNorm

from labkit import devices
from labkit.models.cyclegan import CycleGAN, CycleGANStep
from labkit.models.model import Model
from labkit.models.step import Batch, Step

OBSTACLES = ("unsuited", "emulated", "inactive", "untried")
OTHER_PASSES = "accumulate", "recompute", "streams", "batched"  # networks run more or fewer times, or in another order
SPECTRAL = SpectralNorm, parametrizations._SpectralNorm  # each pass in training changes them
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"  # of a layer
METHODS = "forward", "_conv_forward"  # that a layer may have of its own
OURS = "labkit.", "labtrace."  # where hooks and methods are from that change no result


class SpeedUp(Step):
    """The base of labkit's speed-ups, each a class in a file of its own that overrides seams of a step.

    A speed-up may not change *what* is computed: tests/variants/test_speedups.py compares each, and every pair, with
    the baseline. Its docstring says how it differs, which part of a step's time it should reduce, and when it does not
    help.
    """

    name: str
    changes: str  # how it differs from the baseline
    improves: str  # the part of a step's time, or of its memory, that should get smaller
    needs = "nothing"  # device, companions, and speed-ups it cannot be combined with
    tolerance = "exact"  # or "16-bit", for rounding to 16 bits
    excludes: Mapping[str, str] = MappingProxyType({})  # names it cannot be combined with, and why
    computes_in: torch.dtype | None = None  # the 16-bit type of the convolutions, which a processor may only emulate
    batch_norm_would: str | None = None  # the harm that batch norm would do, where other pictures pass together

    @classmethod
    def obstacles(cls, model: Model) -> dict[str, str]:
        """The reasons against it for this model on its device, by kind, those that forbid it first.

        The kinds are those of `OBSTACLES`: each has a method below.
        """
        reasons = {kind: getattr(cls, f"why_{kind}")(model) for kind in OBSTACLES}
        return {kind: reason for kind, reason in reasons.items() if reason is not None}

    @classmethod
    def why_unsuited(cls, model: Model) -> str | None:
        """The reason why it cannot be used with this model, on the device it is on, or None if it can."""
        if cls.computes_in is not None and next(model.parameters()).device.type == "mps":
            return "training in 16 bits on 'mps' gave others no gradients or no finite ones: leave it out"
        if issubclass(cls, CycleGANStep) and not isinstance(model, CycleGAN):
            return f"it changes how CycleGAN's two cycles run; {model.kind} has none"
        if cls.batch_norm_would is not None and has_batch_norm(model):
            return f"batch norm would {cls.batch_norm_would}: use instance norm"
        others = cls.name in OTHER_PASSES
        types = {weight.dtype: name for name, weight in model.named_parameters()}
        if len(types) > 1 and (others or issubclass(cls, Substitutes)):
            return "weights are of several types: " + ", ".join(f"{name} is {dtype}" for dtype, name in types.items())
        for name, layer in model.named_modules() if others else ():
            parts = [layer, *layer._forward_pre_hooks.values()]
            if any(isinstance(one, SPECTRAL) or getattr(one, "track_running_stats", False) for one in parts):
                return f"{name} changes with each pass (spectral norm, running statistics), and passes would be others"
        return None

    @classmethod
    def why_emulated(cls, model: Model) -> str | None:
        """The reason why it is slow on the model's device, which only emulates its arithmetic, or None if it is not."""
        on_cpu = next(model.parameters()).device.type == "cpu"
        if cls.computes_in is None or not on_cpu or not devices.emulates(cls.computes_in):
            return None
        return f"this processor only emulates {str(cls.computes_in).removeprefix('torch.')}, slower than float32"

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        """The reason why it changes nothing on the model's device, where it does no harm, or None if it acts."""
        return None

    @classmethod
    def why_untried(cls, model: Model) -> str | None:
        """The reason why `labkit.autotune` does not try it to save time, or None if it does."""
        return None if cls.improves not in ("memory", "pictures a second") else f"it improves {cls.improves}"


class Substitutes(SpeedUp):
    """The base of those that compute something else in some layers, while a player learns.

    Where a layer's hooks run and its neighbours are none of its business, `forwards` alone has what it does instead.
    Those in `together` do a part of a neighbour's work, too. They are replaced where their `nn.Sequential` runs them,
    so that features taken layer by layer are PyTorch's, and only while no layer in it is hooked (`is_hooked`).
    """

    def __init__(self, *arguments: Any, **options: Any):
        self.forwards: dict[nn.Module, Callable[[Tensor], Tensor]] = {}  # of each layer, what it does instead
        self.together: set[nn.Module] = set()
        super().__init__(*arguments, **options)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        together = self.together & self.forwards.keys()
        instead = {layer: forward for layer, forward in self.forwards.items() if layer not in together}
        for row in self.model.modules() if together else ():
            if type(row) is nn.Sequential and (mine := together.intersection(row)):
                instead[row] = functools.partial(run_row, row, {layer: self.forwards[layer] for layer in mine})
        instead = {layer: forward for layer, forward in instead.items() if vars(layer).keys().isdisjoint(METHODS)}
        for layer, forward in instead.items():
            vars(layer)["forward"] = forward
        try:
            return super().learn(player, batch)
        finally:
            for layer in instead:
                del vars(layer)["forward"]


def run_row(row: nn.Sequential, forwards: Mapping[nn.Module, Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """What the layers of a row compute one after the other, some of them otherwise."""
    forwards = {} if is_hooked(row) else forwards
    for layer in row:
        x = forwards.get(layer, layer)(x)
    return x


def is_hooked(layers: Iterable[nn.Module]) -> bool:
    """True if somebody has given one of these layers a hook or a method of its own, or hooked into every layer.

    Spectral norm, weight norm and pruning are hooks, but for their parametrized forms, which change a layer's class.
    """
    added = [hook for kind in HOOKS for hook in vars(every_layer)[f"_global{kind}"].values()]
    for own in map(vars, layers):
        added += [hook for kind in HOOKS if own[kind] for hook in own[kind].values()]
        added += [own[name] for name in METHODS if name in own]
    return not all(str(getattr(getattr(one, "func", one), "__module__", "")).startswith(OURS) for one in added)


def has_batch_norm(model: nn.Module) -> bool:
    """True if a layer normalises over the whole batch, so that it matters which pictures pass together."""
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules())


def has_dropout(model: nn.Module) -> bool:
    """True if a layer drops values at random, so that a pass depends on random numbers."""
    return any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules())


def no_shared_casts(device: str) -> AbstractContextManager:
    """Autocast as it is on this type of device ("cuda"), on or off, but without its cache of cast weights."""
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=False)
