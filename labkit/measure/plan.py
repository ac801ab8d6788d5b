"""The measurements that are worth making on a GPU, the most important first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure.record import Batch, noise
from labkit.measure.timing import flags
from labkit.models import MODELS
from labkit.models.cyclegan import CycleGAN, CycleGANStep, Journey
from labkit.models.step import Batch as Inputs
from labkit.models.step import Step
from labkit.networks.light import LIGHT
from labkit.variants.registry import SPEEDUPS, make_step

Stack = tuple[str, ...]  # names of speed-ups

SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
RESNET, UNET = {"generator": "resnet_9blocks"}, {"generator": "unet_256"}
FEWER_BLOCKS = ("resnet_6blocks", "resnet_3blocks")
FEWER_LAUNCHES = ("batched", "fused_adam", "out_of_place")
# Stacks worth measuring: speed-ups that save launches on one another, with those that make kernels shorter.
STACKS: list[Stack] = [
    (*graph, *FEWER_LAUNCHES, *shorter)
    for graph in ((), ("graph",))
    for shorter in ((), ("bf16",), ("bf16", "channels_last"))
]
STACKS += [("graph", "streams"), ("streams", "bf16"), ("streams", "fp16")]
# Compiling takes a minute before each of these is measured.
COMPILED: list[Stack] = [("compile", "bf16"), ("graph", "compile", "batched", "bf16"), ("compile",)]
MEMORY: list[Stack] = [("recompute",), ("accumulate",), ("recompute", "bf16")]
BEST: Stack = ("graph", *FEWER_LAUNCHES, "bf16")
TIMING = {1: (7, 15), 4: (8, 12), 16: (13, 9)}  # by batch size: seconds on an H200, and rounds


@dataclass(frozen=True)
class Item:
    """One thing to measure, which makes one row of a survey.

    Args:
        kind: "correctness", "device", "timing", "race", "energy", "trace" or "durations"; "device" ignores the
            arguments after the next.
        estimate_s: about how many seconds it takes on an H200. A survey learns how far off this is on its own device.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        scope: "step", or "forward": CycleGAN's two cycles without identity, as the course paper timed them.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, steps to record, or rounds to time.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    estimate_s: float
    settings: dict = field(default_factory=dict)
    size: int = 256
    batch_size: int = 1
    scope: str = "step"
    tf32: str = "default"
    speedups: Stack = ()
    steps: int = 0
    model: str = "CycleGAN"

    @property
    def key(self) -> str:
        """Its name in the results, for example "timing/step/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        return f"{self.kind}/{self.scope}/{self.called}/{self.size}/b{self.batch_size}/tf32={self.tf32}/{self.stack}"

    @property
    def called(self) -> str:
        """The model's name and settings, for example "DeviationGAN,consistency=deviation_both"."""
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        return ",".join(named if self.model == "CycleGAN" else [self.model, *named])

    @property
    def stack(self) -> str:
        """Its speed-ups as one name, for example "streams+bf16"."""
        return "+".join(self.speedups) or "baseline"

    def baseline(self) -> Item:
        """The item to compare it with: no speed-ups, and PyTorch's own flags."""
        return replace(self, speedups=(), tf32="default")

    def rival(self) -> Item:
        """CycleGAN with ResNet-9 and the same speed-ups; for another generator of CycleGAN also as wide as that."""
        settings = self.settings | RESNET if self.model == "CycleGAN" else RESNET
        return replace(self, model="CycleGAN", settings=settings)

    def step(self, device: torch.device, dtype: torch.dtype = torch.float32, lr: float | None = None) -> Step:
        """A new step, always with the same initial weights; each call of it runs under the item's flags.

        Raises:
            LabkitError: a speed-up does not suit the device.
        """
        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            kind = Cycles if self.scope == "forward" else MODELS[self.model]
            model = kind(**self.settings, **({"lambda_identity": 0.0} if kind is Cycles else {}))
        try:
            # A rehearsal on a processor asks whether everything runs, not how fast.
            return make_step(model.to(dtype), with_flags(self.tf32), *self.speedups, lr=lr, emulate=True)
        except LabkitError as error:
            raise LabkitError(f"does not suit this device: {error}") from error

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Batch:
        """Noise of the item's size; see `labkit.measure.record.noise`."""
        return noise(self.batch_size, self.size, device, dtype, seed)


def with_flags(tf32: str) -> type:
    """A class for `make_step`: each call of the step runs under these flags."""

    class WithFlags:
        def __call__(self, real_a: Tensor, real_b: Tensor) -> dict[str, Tensor]:
            with flags(tf32):
                return super().__call__(real_a, real_b)  # type: ignore[misc]  # stacked on a step

    return WithFlags


class CyclesStep(CycleGANStep):
    """CycleGAN's two cycles alone, forward only: through the seams, which speed-ups change."""

    def run(self, batch: Inputs) -> dict[str, Tensor]:
        return {name: pictures.detach().mean() for name, pictures in self.losses("generators", batch).items()}

    def generators(self, batch: Inputs) -> dict[str, Tensor]:
        model = self.model
        journeys = [
            Journey(model.G_A, model.G_B, batch["real_a"], None),
            Journey(model.G_B, model.G_A, batch["real_b"], None),
        ]
        return {f"back_{name}": cycle.back for name, cycle in zip("AB", self.cycles(journeys), strict=True)}


class Cycles(CycleGAN):
    """CycleGAN for timing its two cycles alone."""

    step_class = CyclesStep
    loss_names = ("back_A", "back_B")


def gpu_plan() -> list[Item]:
    """A survey of a GPU, for a few calls of eight minutes each, the most important items first.

    First the correctness of every speed-up on this GPU, and ResNet-9 at batch 1 and 16, each speed-up alone and the
    stacks, with traces and the operators' durations for replay. Then U-Net-256, the cycles alone, one generator instead
    of two, energy, and the light generators; last memory, TF32, batch 4, and what else compiles. Among the traces are
    those that notebooks 03 to 06 ask `labkit.gpu_trace` for.
    """
    left_out = (*COMPILED, *MEMORY, ("rows",), ("compile_regions",))  # for later; and for processors
    alone: list[Stack] = [(name,) for name in SPEEDUPS if (name,) not in left_out]
    others = [stack for stack in alone if stack != ("graph",)]
    small: dict[str, Any] = dict(settings=SMALL, size=128, tf32="off", steps=50)  # a race shows only now and then
    trace: dict[str, Any] = dict(settings=RESNET, steps=8)
    in_forward: list[Stack] = [(), ("streams",), ("batched",), ("bf16",), ("streams", "bf16")]  # others act elsewhere
    both = [1, 16]
    return [
        *each("correctness", 12, [2], [("graph",)], **small | {"steps": 200}),  # the longer, the more replays
        *each("correctness", 6, [1], [("channels_last",)], **small),  # some devices go wrong with one picture
        *each("correctness", 6, [2], [*others, BEST, ("streams", "bf16"), ("graph", "streams")], **small),
        Item("device", 10),
        *timings(RESNET, both, [()]),
        *timings(RESNET, [1], [*STACKS, *alone]),
        *timings(RESNET, [16], STACKS),
        *each("trace", 15, both, [(), ("streams",), BEST], **trace),
        *each("trace", 15, [1], [("graph", *FEWER_LAUNCHES)], **trace),
        *each("durations", 20, both, [(), ("bf16",)], settings=RESNET),
        *timings(RESNET, both, [("compile", "bf16")], estimate_s=90),
        *timings(RESNET, both, in_forward, scope="forward"),
        *timings(UNET, both, [(), ("streams",), ("bf16",), BEST]),
        *timings(UNET, both, in_forward, scope="forward"),
        *races({}, both, [(), BEST], model="DeviationGAN"),
        *races({"consistency": "deviation_both"}, both, [(), BEST], model="DeviationGAN"),
        *each("energy", 12, both, [("streams",), ("bf16",), BEST], settings=RESNET),
        *each("trace", 15, [16], [("bf16",)], **trace),
        *each("trace", 15, [1], [("bf16",), FEWER_LAUNCHES, ("compile",)], **trace),
        *each("trace", 15, [16], [(), ("streams",), BEST], **trace | {"settings": UNET}),
        *(item for name in (*FEWER_BLOCKS, *LIGHT) for item in races({"generator": name}, both, [()])),
        *timings(RESNET, [16], alone),
        *timings(RESNET, both, COMPILED[1:], estimate_s=90),
        *each("correctness", 60, [2], COMPILED, **small),
        *timings(RESNET, [16], MEMORY),
        *(item for tf32 in ("on", "off") for item in timings(RESNET, both, [()], tf32=tf32)),
        *(item for tf32 in ("on", "off") for item in timings(UNET, both, [()], tf32=tf32)),
        *timings(RESNET, [4], [(), *STACKS]),
    ]


def each(
    kind: str, estimate_s: float, batch_sizes: Iterable[int], stacks: Iterable[Stack], **fields: Any
) -> list[Item]:
    """An item for each batch size and each stack, of those that are possible: no speed-up in it excludes another."""
    return [
        Item(kind, estimate_s, batch_size=batch_size, speedups=stack, **fields)
        for batch_size in batch_sizes
        for stack in stacks
        if SPEEDUPS.keys() >= set(stack) and all(SPEEDUPS[name].excludes.keys().isdisjoint(stack) for name in stack)
    ]


def timings(
    settings: dict, batch_sizes: Iterable[int], stacks: Iterable[Stack], estimate_s: float = 0, **fields: Any
) -> list[Item]:
    """Each stack against the baseline; `estimate_s` replaces the usual estimate."""
    items = []
    for batch_size in batch_sizes:
        seconds, rounds = TIMING[batch_size]
        items += each("timing", estimate_s or seconds, [batch_size], stacks, settings=settings, steps=rounds, **fields)
    return items


def races(settings: dict, batch_sizes: Iterable[int], stacks: Iterable[Stack], **fields: Any) -> list[Item]:
    """A model against CycleGAN with ResNet-9, both with the same stack."""
    return [replace(item, kind="race") for item in timings(settings, batch_sizes, stacks, **fields)]


def rehearsal_plan() -> list[Item]:
    """Items of every kind, small enough for a CPU, which leaves out the streams, TF32 and energy."""
    return [
        Item("correctness", 1, SMALL, 64, tf32="off", speedups=("bf16",), steps=2),
        Item("correctness", 1, SMALL, 64, tf32="off", speedups=("streams",), steps=2),
        Item("device", 2),
        Item("timing", 1, TINY, 32, steps=6),
        Item("timing", 1, TINY, 32, tf32="off", steps=6),
        Item("timing", 1, TINY, 32, speedups=("bf16",), steps=6),
        Item("timing", 1, TINY, 32, scope="forward", speedups=("bf16",), steps=6),
        Item("race", 1, TINY, 32, steps=6),
        Item("energy", 1, TINY, 32, speedups=("bf16",)),
        Item("trace", 2, TINY, 32, steps=2),
        Item("durations", 2, TINY, 32),
    ]
