"""The measurements that are worth making on a GPU, the most important first."""

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

Stack = tuple[str, ...]  # names of speed-ups

SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
ONE_GENERATOR: tuple[dict, ...] = ({}, {"consistency": "deviation_both"})
RESNET, UNET = {"generator": "resnet_9blocks"}, {"generator": "unet_256"}
FEWER_LAUNCHES = ("batched", "fused_adam", "out_of_place")
# Stacks worth measuring: speed-ups that save launches on one another, with those that make kernels shorter.
STACKS: list[Stack] = [
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
# Compiling takes a minute before each of these is measured.
COMPILED: list[Stack] = [("compile", "bf16"), ("graph", "compile", "batched", "bf16"), ("compile",)]
MEMORY: list[Stack] = [("recompute",), ("accumulate",), ("recompute", "bf16")]
BEST: Stack = ("graph", *FEWER_LAUNCHES, "bf16")
ROUNDS = {1: 15, 4: 12, 16: 9}  # of a timing, by batch size


@dataclass(frozen=True)
class Item:
    """One thing to measure, which makes one row of a survey.

    Args:
        kind: "correctness", "device", "timing", "trace" or "durations"; "device" ignores all further arguments but the
            next.
        seconds: about how long it takes on an H200. A survey learns how far off this is on its own device.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        scope: "step", or "forward": CycleGAN's two cycles without identity, as the course paper timed them.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, steps to record, or rounds to time.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    seconds: float
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
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        model = ",".join(named if self.model == "CycleGAN" else [self.model, *named])
        return f"{self.kind}/{self.scope}/{model}/{self.size}/b{self.batch_size}/tf32={self.tf32}/{self.stack}"

    @property
    def stack(self) -> str:
        """Its speed-ups as one name, for example "streams+bf16"."""
        return "+".join(self.speedups) or "baseline"

    def description(self) -> dict:
        """The fields that say what is measured."""
        fields = {"kind": self.kind} if self.kind == "device" else asdict(self)
        return {name: value for name, value in fields.items() if name != "seconds"}

    def baseline(self) -> Item:
        """The item to compare it with: no speed-ups, and PyTorch's own flags."""
        return replace(self, speedups=(), tf32="default")

    def step(
        self, device: torch.device, *own: type, dtype: torch.dtype = torch.float32, lr: float | None = None
    ) -> Step:
        """A new step, always with the same initial weights, with the classes `own` outermost.

        Raises:
            LabkitError: a speed-up does not suit the device.
        """
        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            kind = Cycles if self.scope == "forward" else MODELS[self.model]
            model = kind(**self.settings, **({"lambda_identity": 0.0} if kind is Cycles else {}))
        try:
            return make_step(model.to(dtype), *own, *self.speedups, lr=lr)
        except LabkitError as error:
            raise LabkitError(f"does not suit this device: {error}") from error

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Batch:
        """Noise, (B, 3, size, size) in [-1, 1], for either domain."""
        random = torch.Generator(device).manual_seed(seed)
        shape = (self.batch_size, 3, self.size, self.size)
        real_a, real_b = (torch.rand(shape, generator=random, device=device, dtype=dtype) * 2 - 1 for _ in range(2))
        return real_a, real_b


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
    stacks, with traces and the operators' durations for replay. Then compiled steps, batch 4, memory, the cycles alone,
    and U-Net-256; last one generator instead of two, and the light generators.
    """
    alone: list[tuple[str, ...]] = [(name,) for name in SPEEDUPS if (name,) not in (*COMPILED, *MEMORY)]
    plan = [*correctness([*alone, BEST, ("streams", "bf16"), ("graph", "streams")], 6), Item("device", 10)]
    plan += [*baselines(RESNET, 1, 7), *timings(RESNET, 1, 7, [*STACKS, *alone])]
    plan += [*baselines(RESNET, 16, 13), *timings(RESNET, 16, 13, STACKS)]
    in_pairs = [(size, stack) for stack in ((), ("streams",), BEST) for size in (1, 16)]
    plan += traces(RESNET, [*in_pairs, (1, ("bf16",))])
    plan += [Item("durations", 20, RESNET, 256, size, speedups=stack) for size in (1, 16) for stack in ((), ("bf16",))]
    plan += timings(RESNET, 16, 13, alone)
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
        plan += [item for size in (1, 16) for item in timings(settings, size, 7, [stack], model="DeviationGAN")]
    plan += [item for name in LIGHT for size in (1, 16) for item in timings({"generator": name}, size, 8, [()])]
    return [item for item in plan if is_possible(item.speedups)]


def is_possible(stack: Stack) -> bool:
    """Whether all these speed-ups exist, and none excludes another."""
    return SPEEDUPS.keys() >= set(stack) and not any(
        other in SPEEDUPS[name].excludes for name in stack for other in stack
    )


def correctness(stacks: list[Stack], seconds: float) -> list[Item]:
    """Each stack against the baseline, on many batches, as a race shows only now and then."""
    return [Item("correctness", seconds, SMALL, 128, 2, tf32="off", speedups=stack, steps=50) for stack in stacks]


def baselines(settings: dict, batch_size: int, seconds: float) -> list[Item]:
    """The baseline against itself, and against itself with TF32 on everywhere, and nowhere."""
    modes = ("default", "on", "off")
    return [item for tf32 in modes for item in timings(settings, batch_size, seconds, [()], tf32=tf32)]


def timings(
    settings: dict,
    batch_size: int,
    seconds: float,
    stacks: list[Stack],
    scope: str = "step",
    tf32: str = "default",
    model: str = "CycleGAN",
) -> list[Item]:
    """Each stack against the baseline."""
    rounds = ROUNDS[batch_size]
    return [Item("timing", seconds, settings, 256, batch_size, scope, tf32, stack, rounds, model) for stack in stacks]


def traces(settings: dict, wanted: list[tuple[int, Stack]]) -> list[Item]:
    """A trace of each batch size and stack; a long one of the baseline at batch 1."""
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
        Item("timing", 1, TINY, 32, steps=6),
        Item("timing", 1, TINY, 32, tf32="off", steps=6),
        Item("timing", 1, TINY, 32, speedups=("bf16",), steps=6),
        Item("timing", 1, TINY, 32, scope="forward", speedups=("bf16",), steps=6),
        Item("trace", 2, TINY, 32, steps=2),
        Item("durations", 2, TINY, 32),
    ]
