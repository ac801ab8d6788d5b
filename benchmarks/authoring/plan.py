"""What a survey of a GPU measures, item by item, and what a rehearsal on a processor does."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from labkit.measure import flags
from labkit.measure.record import Pair, noise
from labkit.models import MODELS
from labkit.models.step import Step
from labkit.networks.light import LIGHT
from labkit.variants.registry import SPEEDUPS, make_step

Stack = tuple[str, ...]  # names of speed-ups

RESNET, UNET = {"generator": "resnet_9blocks"}, {"generator": "unet_256"}
SMALL = {"generator": "resnet_3blocks", "ngf": 16, "discriminator": "n_layers", "n_layers": 2, "ndf": 16}
TINY = SMALL | {"ngf": 4, "ndf": 4}
TINIEST = TINY | {"ngf": 2, "ndf": 2, "n_layers": 1, "pool_size": 2}
FEWER_LAUNCHES = ("batched", "fused_adam", "out_of_place")
BEST: Stack = ("graph", *FEWER_LAUNCHES, "bf16")  # of those that were surveyed
NEW: Stack = ("graph", "nhwc", "batched", "fused_adam", "bf16")  # the one that should be faster
BATCH_THAT_FILLS_GPU = 16  # pictures in a batch, from which on we expect the GPU to be behind
LIGHTER = ("resnet_6blocks", "resnet_3blocks", *LIGHT)
# Stacks worth measuring: speed-ups that save launches on one another, with those that make kernels shorter.
STACKS: list[Stack] = [
    (*graph, *FEWER_LAUNCHES, *shorter)
    for graph in ((), ("graph",))
    for shorter in ((), ("bf16",), ("bf16", "channels_last"))
]
STACKS += [("graph", "streams"), ("streams", "bf16"), ("streams", "fp16")]
# Compiling takes a minute before each of these is measured.
COMPILED: list[Stack] = [("compile", "bf16"), ("graph", "compile", "batched", "bf16"), ("compile",)]
LEFT_OUT = ("winograd", "accumulate", "recompute", "compile", "data_parallel")


@dataclass(frozen=True)
class Item:
    """One thing to measure, which makes one row.

    Args:
        kind: a key of `MEASURES` in survey.py; "device" ignores the arguments after the next.
        estimate_s: about how many seconds it takes on an H200. A survey learns how far off this is on its own device.
        settings: keyword arguments of the model.
        size, batch_size: pixels of a picture's side, pictures of either domain.
        tf32: "on", "off", or "default", PyTorch's own: convolutions in TF32, matrix products in float32.
        benchmark: whether cuDNN tries its algorithms, as in the public reference, or guesses.
        speedups: names for `labkit.make_step`; without any, the baseline itself.
        steps: how many batches to compare, steps to record, updates to make, or rounds to time.
        model: "CycleGAN" or "DeviationGAN".
    """

    kind: str
    estimate_s: float
    settings: dict = field(default_factory=dict)
    size: int = 256
    batch_size: int = 1
    tf32: str = "default"
    benchmark: bool = True
    speedups: Stack = ()
    steps: int = 0
    model: str = "CycleGAN"

    @property
    def key(self) -> str:
        """Its name in the results, for example "timing/resnet_9blocks/256/b1/tf32=default/streams+bf16"."""
        if self.kind == "device":
            return "device"
        guessing = "" if self.benchmark else "/benchmark=off"
        return f"{self.kind}/{self.called}/{self.size}/b{self.batch_size}/tf32={self.tf32}{guessing}/{self.stack}"

    @property
    def called(self) -> str:
        """The model's name and settings, for example "DeviationGAN,consistency=deviation_both"."""
        named = [value if name == "generator" else f"{name}={value}" for name, value in self.settings.items()]
        return ",".join(named if self.model == "CycleGAN" else [self.model, *named])

    @property
    def stack(self) -> str:
        """Its speed-ups as one name, for example "streams+bf16"."""
        return "+".join(self.speedups) or "baseline"

    @contextmanager
    def flags(self) -> Iterator[None]:
        """Inside, PyTorch's flags are the item's."""
        with flags(self.tf32):
            torch.backends.cudnn.benchmark = self.benchmark
            yield

    def step(self, device: torch.device, dtype: torch.dtype | None = None, lr: float | None = None) -> Step:
        """A new step, always with the same initial weights; each call of it runs under the item's flags."""
        item = self

        class WithFlags:
            def __call__(self, real_a: torch.Tensor, real_b: torch.Tensor) -> dict[str, torch.Tensor]:
                with item.flags():
                    return super().__call__(real_a, real_b)  # type: ignore[misc]  # stacked on a step

        torch.manual_seed(0)
        with device:  # on a GPU weights are drawn there, which is much faster
            model = MODELS[self.model](**self.settings)
        # A rehearsal on a processor asks whether everything runs, not how fast.
        return make_step(model.to(dtype=dtype), WithFlags, *self.speedups, lr=lr, emulate=True)

    def batch(self, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Pair:
        """Noise of the item's size."""
        return noise(self.batch_size, self.size, device, dtype, seed)


def gpu_plan() -> list[Item]:
    """A survey of a GPU, for calls of eight minutes each, the most important items first.

    The first call asks whether `nhwc` is right, how fast it is against the best stack before it, where its time goes,
    and whether it trains alike. The next one asks what the lab claims: the best stacks of ResNet-9 at batch 1 and 16,
    two streams against one, and whether the graph and these stacks are right. Then it records traces, among them those
    that notebooks 03 to 06 ask `labcourse.gpu_trace` for. Last come each speed-up alone, its correctness, one generator
    instead of two, U-Net-256, the light generators, TF32, and what else compiles. The estimates were measured on an
    H200, but for those of `nhwc`, which has not run on one.
    """
    alone: list[Stack] = [(name,) for name in SPEEDUPS if name not in LEFT_OUT]
    small: dict[str, Any] = dict(settings=SMALL, size=128, tf32="off", steps=50)  # a race shows only now and then
    both, one_or_two = [1, 16], [(), ("streams",)]
    timing = functools.partial(each, "timing", estimate_s=20, steps=10)
    race = functools.partial(each, "race", estimate_s=10, steps=10)
    trace, correct = functools.partial(each, "trace", estimate_s=30, steps=4), functools.partial(each, "correctness")
    in_turn: dict[str, Any] = dict(settings=RESNET, estimate_s=18, steps=20)
    one = functools.partial(Item, settings=RESNET, speedups=NEW)
    last: Stack = ("channels_last", *FEWER_LAUNCHES, "bf16")
    plan = [
        Item("device", 2),
        one("right", 40, speedups=("nhwc",), benchmark=False),
        one("in_turn", 75, batch_size=16, steps=28),
        one("in_turn", 50, steps=100),
        *trace([16], [NEW], settings=RESNET, estimate_s=45),
        *trace([1], [NEW], settings=RESNET),
        *trace([16], [BEST], settings=RESNET, estimate_s=35),
        *trace([16], [last], settings=RESNET, estimate_s=50),
        one("replay", 40, steps=4),
        one("updates", 40, steps=200),
        one("sweep", 30, batch_size=16),
        one("convolutions", 40, batch_size=16, speedups=()),
        one("in_turn", 100, speedups=("graph", "compile", "batched", "fused_adam", "bf16"), steps=20),
        *timing(both, [(), BEST, NEW], settings=RESNET),
        *correct([2], [("graph",)], estimate_s=25, **small | {"steps": 200}),  # the longer, the more replays
        *timing([16], COMPILED[:1], settings=RESNET, estimate_s=90),
        *timing([16], [("bf16",)], settings=RESNET),
        *timing([1], [("graph",), FEWER_LAUNCHES, ("graph", *FEWER_LAUNCHES)], settings=RESNET),
        *(item for flag in (False, True) for item in each("streams", both, [()], benchmark=flag, **in_turn)),
        *correct([2], [BEST, ("streams",), ("nhwc",)], estimate_s=12, **small),
        *trace(both, [(), BEST, ("streams",)], settings=RESNET),
        *trace([1], [("graph", *FEWER_LAUNCHES)], settings=RESNET),
        *trace(both, [("bf16",)], settings=RESNET),
        *race(both, [(), BEST], model="DeviationGAN", settings={"consistency": "deviation_both"}),
        *timing([1], COMPILED[:1], settings=RESNET, estimate_s=90),
        *correct([1], [("channels_last",)], estimate_s=12, **small),  # some devices go wrong with one picture
        *correct([2], [*alone, ("streams", "bf16"), ("graph", "streams")], estimate_s=12, **small),
        *timing(both, [*alone, *STACKS], settings=RESNET),
        *trace(both, one_or_two, settings=RESNET, benchmark=False),
        *timing(both, [*one_or_two, ("bf16",), BEST], settings=UNET),
        *race(both, [(), BEST], model="DeviationGAN"),
        *trace([1], [FEWER_LAUNCHES, ("compile",)], settings=RESNET),
        *trace([16], [*one_or_two, BEST], settings=UNET),
        *(item for name in LIGHTER for item in race(both, [()], settings={"generator": name})),
        *timing(both, COMPILED[1:], settings=RESNET, estimate_s=90),
        *correct([2], COMPILED, estimate_s=60, **small),
        *(
            item
            for tf32 in ("on", "off")
            for net in (RESNET, UNET)
            for item in timing(both, [()], settings=net, tf32=tf32)
        ),
    ]
    once: dict[str, Item] = {}
    for item in plan:
        once.setdefault(item.key, item)
    return list(once.values())


def each(kind: str, batch_sizes: Iterable[int], stacks: Iterable[Stack], **fields: Any) -> list[Item]:
    """An item for each batch size and each stack."""
    made = itertools.product(batch_sizes, stacks)
    return [Item(kind, batch_size=batch_size, speedups=stack, **fields) for batch_size, stack in made]


def rehearsal_plan() -> list[Item]:
    """Items of every kind, small enough for a CPU, which leaves out graphs, the streams and TF32."""
    few: Stack = ("batched", "fused_adam")
    return [
        Item("right", 60, TINIEST, 16, speedups=("nhwc",)),
        Item("in_turn", 60, TINIEST, 16, batch_size=2, speedups=NEW, steps=1),
        Item("in_turn", 60, TINIEST, 16, speedups=few, steps=6),
        Item("trace", 60, TINIEST, 32, steps=2),
        Item("replay", 60, TINIEST, 16, speedups=few, steps=2),
        Item("updates", 60, TINIEST, 16, speedups=few, steps=6),
        Item("sweep", 60, TINIEST, 16, speedups=NEW),
        Item("convolutions", 60, TINIEST, 16),
        Item("correctness", 60, TINY, 64, tf32="off", speedups=("batched",), steps=6),
        Item("correctness", 60, TINY, 64, tf32="off", speedups=("streams",), steps=6),
        Item("device", 2),
        Item("timing", 1, TINY, 32, steps=6),
        Item("timing", 1, TINY, 32, tf32="off", steps=6),
        Item("timing", 1, TINY, 32, speedups=("bf16",), steps=6),
        Item("race", 1, TINY, 32, steps=6),
        Item("streams", 60, TINY, 32, benchmark=False, steps=6),
    ]
