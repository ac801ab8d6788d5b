"""What is worth measuring on a GPU, the most important first."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import product

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure.record import Batch
from labkit.models import MODELS
from labkit.models.cyclegan import CycleGAN, CycleGANStep, Journey
from labkit.networks.light import LIGHT
from labkit.step import Batch as Inputs
from labkit.step import Step
from labkit.variants.registry import SPEEDUPS, make_step

SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
ONE_GENERATOR = ({}, {"consistency": "deviation_both"})
RESNET, UNET = {"generator": "resnet_9blocks"}, {"generator": "unet_256"}
FEWER_LAUNCHES = ("batched", "fused_adam", "out_of_place")
# What is worth stacking: on one another, those that take launches away, and those that make kernels shorter.
STACKS = [
    FEWER_LAUNCHES,
    (*FEWER_LAUNCHES, "bf16"),
    (*FEWER_LAUNCHES, "bf16", "channels_last"),
    ("graph", *FEWER_LAUNCHES),
    ("graph", *FEWER_LAUNCHES, "bf16"),
    ("graph", *FEWER_LAUNCHES, "bf16", "channels_last"),
    ("graph", "streams"),
    ("streams", "bf16"),
    ("streams", "fp16"),
]
COMPILED = [("compile", "bf16"), ("graph", "compile", "batched", "bf16"), ("compile",)]  # each costs a minute before
MEMORY = [("recompute",), ("accumulate",), ("recompute", "bf16")]
BEST = ("graph", *FEWER_LAUNCHES, "bf16")


@dataclass(frozen=True)
class Item:
    """One thing to measure, of which a survey makes one row.

    Args:
        kind: "correctness", "device", "timing", "trace" or "durations"; for "device" only the next one means anything.
        seconds: about how long it takes on an H200. A survey learns by how much that is off where it runs.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        scope: "step", or "forward": CycleGAN's two cycles without identity, as the course paper timed them.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, or how many steps to record. A timing takes what its seconds allow.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    seconds: float
    settings: dict = field(default_factory=dict)
    size: int = 256
    batch_size: int = 1
    scope: str = "step"
    tf32: str = "default"
    speedups: tuple[str, ...] = ()
    steps: int = 0
    model: str = "CycleGAN"

    @property
    def key(self) -> str:
        """Its name in the results, as "timing/step/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        model = ",".join(named if self.model == "CycleGAN" else [self.model, *named])
        stack = "+".join(self.speedups) or "baseline"
        return f"{self.kind}/{self.scope}/{model}/{self.size}/b{self.batch_size}/tf32={self.tf32}/{stack}"

    def description(self) -> dict:
        """The fields that say what is measured."""
        fields = {"kind": self.kind} if self.kind == "device" else asdict(self)
        return {name: value for name, value in fields.items() if name != "seconds"}

    def baseline(self) -> Item:
        """What it is measured against: no speed-ups, and PyTorch's own flags."""
        return replace(self, speedups=(), tf32="default")

    def step(self, device: torch.device, *own: type, dtype: torch.dtype = torch.float32) -> Step:
        """A new step, always from the same weights, with the classes `own` outermost.

        Raises:
            LabkitError: a speed-up does not suit the device.
        """
        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            forward = self.scope == "forward"
            model = Cycles(**self.settings, lambda_identity=0.0) if forward else MODELS[self.model](**self.settings)
        try:
            return make_step(model.to(dtype), *own, *self.speedups)
        except LabkitError as error:
            raise LabkitError(f"does not suit this device: {error}") from error

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Batch:
        """Noise, (B, 3, size, size) in [-1, 1], for either domain."""
        random = torch.Generator(device).manual_seed(seed)
        shape = (self.batch_size, 3, self.size, self.size)
        return tuple(torch.rand(shape, generator=random, device=device, dtype=dtype) * 2 - 1 for _ in range(2))


class CyclesStep(CycleGANStep):
    """CycleGAN's step, whose generators only make their two cycles, through the seams that speed-ups change."""

    def generators(self, batch: Inputs) -> dict[str, Tensor]:
        model = self.model
        journeys = [
            Journey(model.G_A, model.G_B, batch["real_a"], None),
            Journey(model.G_B, model.G_A, batch["real_b"], None),
        ]
        return {f"back_{name}": cycle.back for name, cycle in zip("ab", self.cycles(journeys), strict=True)}


class Cycles(CycleGAN):
    """CycleGAN for timing its two cycles alone."""

    step_class = CyclesStep


def gpu_plan() -> list[Item]:
    """All that is to be told of a GPU, for a few calls of eight minutes each, the most important first.

    First whether every speed-up is right here, and ResNet-9 at batch 1 and 16, each speed-up alone and the stacks, with
    traces and the durations for replay; then what is compiled, batch 4, memory, the cycles alone, and U-Net-256; at
    last one generator instead of two, and the light ones.
    """
    alone = [(name,) for name in SPEEDUPS if (name,) not in (*COMPILED, *MEMORY)]
    plan = [*correctness([*alone, BEST, ("streams", "bf16"), ("graph", "streams")], 6), Item("device", 10)]
    plan += [*baselines(RESNET, 1, 5), *timings(RESNET, 1, 6, [*STACKS, *alone])]
    plan += [*baselines(RESNET, 16, 8), *timings(RESNET, 16, 12, STACKS)]
    in_pairs = [(size, stack) for stack in ((), ("streams",), BEST) for size in (1, 16)]
    plan += traces(RESNET, [*in_pairs, (1, ("bf16",))])
    plan += [Item("durations", 20, RESNET, 256, size, speedups=stack) for size in (1, 16) for stack in ((), ("bf16",))]
    plan += timings(RESNET, 16, 12, alone)
    plan += [item for stack in COMPILED for size in (1, 16) for item in timings(RESNET, size, 90, [stack])]
    plan += [*correctness(COMPILED, 60), *timings(RESNET, 16, 15, MEMORY)]
    plan += [*baselines(RESNET, 4, 6), *timings(RESNET, 4, 8, STACKS)]
    in_forward = [(), ("streams",), ("batched",), ("bf16",), ("streams", "bf16")]  # others act on the rest of a step
    for settings in (RESNET, UNET):
        if settings is UNET:
            plan += [*baselines(UNET, 1, 5), *timings(UNET, 1, 6, [("streams",), ("bf16",), BEST])]
            plan += [*baselines(UNET, 16, 8), *timings(UNET, 16, 12, [("streams",), ("bf16",), BEST])]
        plan += [*timings(settings, 1, 6, in_forward, "forward"), *timings(settings, 16, 10, in_forward, "forward")]
    plan += traces(UNET, [(16, ()), (16, ("streams",)), (16, BEST), (1, ())])
    plan += traces(RESNET, [(16, ("bf16",)), (1, FEWER_LAUNCHES), (1, ("compile", "bf16"))])
    for settings, stack in product(ONE_GENERATOR, ((), BEST)):
        plan += [Item("timing", 6, settings, 256, size, speedups=stack, model="DeviationGAN") for size in (1, 16)]
    plan += [Item("timing", 8, {"generator": name}, 256, size) for name in LIGHT for size in (1, 16)]
    return [item for item in plan if is_possible(item.speedups)]


def is_possible(stack: tuple[str, ...]) -> bool:
    """Whether there are all these speed-ups, and none excludes another."""
    known = SPEEDUPS
    return known.keys() >= set(stack) and not any(other in known[name].excludes for name in stack for other in stack)


def correctness(stacks: list[tuple[str, ...]], seconds: float) -> list[Item]:
    """Each stack against the baseline, on many batches, as a race shows only now and then."""
    return [Item("correctness", seconds, SMALL, 128, 2, tf32="off", speedups=stack, steps=50) for stack in stacks]


def baselines(settings: dict, batch_size: int, seconds: float) -> list[Item]:
    """The baseline against itself, and against itself with TF32 on everywhere, and nowhere."""
    return [Item("timing", seconds, settings, 256, batch_size, tf32=tf32) for tf32 in ("default", "on", "off")]


def timings(
    settings: dict, batch_size: int, seconds: float, stacks: list[tuple[str, ...]], scope: str = "step"
) -> list[Item]:
    """Each stack against the baseline."""
    return [Item("timing", seconds, settings, 256, batch_size, scope, speedups=stack) for stack in stacks]


def traces(settings: dict, wanted: list[tuple[int, tuple[str, ...]]]) -> list[Item]:
    """A trace of each batch size and stack; of the baseline at batch 1 a long one."""
    return [
        Item("trace", 45, settings, 256, batch_size, steps=20)
        if (batch_size, stack) == (1, ())
        else Item("trace", 15, settings, 256, batch_size, speedups=stack, steps=5)
        for batch_size, stack in wanted
    ]


def rehearsal_plan() -> list[Item]:
    """Items of every kind, small enough for a CPU, which leaves out the streams and TF32."""
    return [
        Item("correctness", 1, SMALL, 64, tf32="off", speedups=("bf16",), steps=2),
        Item("correctness", 1, SMALL, 64, tf32="off", speedups=("streams",), steps=2),
        Item("device", 2),
        Item("timing", 1, TINY, 32),
        Item("timing", 1, TINY, 32, tf32="off"),
        Item("timing", 1, TINY, 32, speedups=("bf16",)),
        Item("timing", 1, TINY, 32, scope="forward", speedups=("bf16",)),
        Item("trace", 2, TINY, 32, steps=2),
        Item("durations", 2, TINY, 32),
    ]
