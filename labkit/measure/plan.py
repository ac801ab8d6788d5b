"""What is worth measuring on a GPU, the most important first."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.measure.recording import Batch
from labkit.models.cyclegan import CycleGAN
from labkit.steps.making import known_speedups, make_step
from labkit.steps.step import Step

SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
PAIRS = [("streams", "bf16"), ("streams", "fp16")]  # what is worth stacking


@dataclass(frozen=True)
class Item:
    """One thing to measure, of which a survey makes one row.

    Args:
        kind: "correctness", "device", "timing" or "trace"; for "device" only the next one means anything.
        seconds: about how long it takes on an H200. A survey learns by how much that is off where it runs.
        settings: keyword arguments of `labkit.CycleGAN`.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        scope: "step", or "forward": the two cycles without identity, as the course paper timed it.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, or how many steps to record. A timing takes what its seconds allow.
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

    @property
    def key(self) -> str:
        """Its name in the results, as "timing/step/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        model = ",".join(value if name == "generator" else f"{name}={value}" for name, value in self.settings.items())
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
            model = Cycles(**self.settings, lambda_identity=0.0) if forward else CycleGAN(**self.settings)
        try:
            return make_step(model.to(dtype), *own, *self.speedups)
        except LabkitError as error:
            raise LabkitError(f"does not suit this device: {error}") from error

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Batch:
        """Noise, (B, 3, size, size) in [-1, 1], for either domain."""
        random = torch.Generator(device).manual_seed(seed)
        shape = (self.batch_size, 3, self.size, self.size)
        return tuple(torch.rand(shape, generator=random, device=device, dtype=dtype) * 2 - 1 for _ in range(2))


class Cycles(CycleGAN):
    """CycleGAN whose generators only make their two cycles: called through a step's seams, which speed-ups change."""

    def generator_losses(self, step: Step, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        cycle_a, cycle_b = step.both_cycles(self, batch["real_a"], batch["real_b"])
        return {"back_a": cycle_a.back, "back_b": cycle_b.back}


def gpu_plan() -> list[Item]:
    """All that is to be told of a GPU: on an H200 about twelve minutes up to U-Net-256, and ten more for it."""
    known = known_speedups()
    stacks = [*((name,) for name in known), *PAIRS]
    plan = [Item("correctness", 8, SMALL, 128, 2, tf32="off", speedups=stack, steps=50) for stack in stacks]
    plan.append(Item("device", 10))
    for generator in ("resnet_9blocks", "unet_256"):
        plan += timings({"generator": generator}, stacks) + traces({"generator": generator})
    return [item for item in plan if known.keys() >= set(item.speedups)]


def timings(settings: dict, stacks: list[tuple[str, ...]]) -> list[Item]:
    """Whole steps, then the cycles alone, at batch 1 and 16; each time the baseline first, against itself."""
    items = []
    for batch_size, seconds in ((1, 8), (16, 15)):
        items += [Item("timing", seconds, settings, 256, batch_size, tf32=tf32) for tf32 in ("default", "on", "off")]
        items += [Item("timing", seconds, settings, 256, batch_size, speedups=stack) for stack in stacks]
    in_forward = [(), ("streams",), ("bf16",), ("fp16",), *PAIRS]  # other speed-ups act on the rest of a step
    for batch_size, seconds in ((1, 6), (16, 10)):
        items += [Item("timing", seconds, settings, 256, batch_size, "forward", speedups=stack) for stack in in_forward]
    return items


def traces(settings: dict) -> list[Item]:
    """The baseline at length and shorter ones to lay beside it: seven, as many as a survey's folder takes."""
    beside = [
        (1, ("streams",)),
        (1, ("bf16",)),
        (1, ("streams", "bf16")),
        (16, ()),
        (16, ("streams",)),
        (16, ("bf16",)),
    ]
    return [
        Item("trace", 45, settings, 256, 1, steps=20),
        *(Item("trace", 15, settings, 256, batch_size, speedups=stack, steps=5) for batch_size, stack in beside),
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
    ]
