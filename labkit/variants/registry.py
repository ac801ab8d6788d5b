"""The speed-ups there are, and a step made of a model and any number of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.errors import LabkitError, check_overrides
from labkit.models.model import Model
from labkit.models.step import Step
from labkit.variants import SpeedUp
from labkit.variants.accumulate import Accumulate
from labkit.variants.batched import Batched
from labkit.variants.bf16 import BF16
from labkit.variants.channels_last import ChannelsLast
from labkit.variants.compile import Compile
from labkit.variants.data_parallel import DataParallel
from labkit.variants.fp16 import FP16
from labkit.variants.fused_adam import FusedAdam
from labkit.variants.graph import Graph
from labkit.variants.nhwc import NHWC
from labkit.variants.out_of_place import OutOfPlace
from labkit.variants.recompute import Recompute
from labkit.variants.streams import Streams
from labkit.variants.subpixel import Subpixel
from labkit.variants.winograd import Winograd
from labtrace.errors import check_at_least, check_known

if TYPE_CHECKING:
    import pandas

# Outermost first. A graph records all the others. A batch is split before any network runs, and the ranks exchange
# gradients around everything that computes them. Recompute hands its checkpoints to what orders the passes (streams).
# Autocast is set inside of streams and checkpoints, so that each side stream and each second pass casts for itself.
STACKED: list[type[SpeedUp]] = [
    Graph,
    Accumulate,
    DataParallel,
    Compile,
    OutOfPlace,
    NHWC,
    Winograd,
    Subpixel,
    ChannelsLast,
    Recompute,
    Streams,
    Batched,
    BF16,
    FP16,
    FusedAdam,
]
SPEEDUPS = {speedup.name: speedup for speedup in STACKED}


def make_step(
    model: Model,
    *speedups: str | type,
    lr: float | Mapping[str, float] | None = None,
    betas: tuple[float, float] = (0.5, 0.999),
    accumulate: int | None = None,
    emulate: bool = False,
) -> Step:
    """The training step of `model` with speed-ups stacked on it. Without any, it is the reference's update.

    Args:
        model: a `labkit.CycleGAN` or a `labkit.DeviationGAN`.
        speedups: names from `labkit.speedups()`, or your classes that override a seam of
            `labkit.models.step.Step`. Named ones stack in one fixed order. Your classes go around them, the first one
            outermost. A class that rounds to 16 bits says ``tolerance = "16-bit"``, or `labkit.compare` holds it to
            float32.
        lr: Adam's learning rate, for every player or by player, such as
            ``{"generators": 2e-4, "discriminators": 1e-4}``. None takes the model's own.
        betas: Adam's decay rates, for every player.
        accumulate: with a number, the speed-up "accumulate" in that many parts. By its name alone it makes two.
        emulate: True lets "bf16" and "fp16" run on a processor that only emulates these types. They are then several
            times slower than the baseline, but round as elsewhere.

    Raises:
        LabkitError: a name is unknown, two of them exclude each other, one does not suit model or device, a class
            overrides no seam, a number is out of range, or all weights of a player are frozen.

    Example:
        >>> model = labkit.CycleGAN("resnet_3blocks", ngf=4, ndf=4)
        >>> step = labkit.make_step(model, "batched")
        >>> losses = step(torch.rand(1, 3, 64, 64) * 2 - 1, torch.rand(1, 3, 64, 64) * 2 - 1)
        >>> list(losses)
        ['D_A', 'G_A', 'cycle_A', 'idt_A', 'D_B', 'G_B', 'cycle_B', 'idt_B']
    """
    if not isinstance(model, Model):
        kind = type(model).__name__
        raise LabkitError(f"model is a {kind}: give a labkit.CycleGAN(). labkit.simulate.predict takes any step.")
    names = [name for name in speedups if not isinstance(name, type)]
    attributes: dict[str, int] = {}
    if accumulate is not None:
        check_at_least(1, accumulate=accumulate)
        names.append("accumulate")
        attributes["parts"] = accumulate
    for name in names:
        check_known("speed-up", name, SPEEDUPS)
        for other, reason in SPEEDUPS[name].excludes.items():
            if other in names:
                raise LabkitError(f"speed-ups {name!r} and {other!r} exclude each other: {reason}. Leave one out.")
        obstacles = SPEEDUPS[name].obstacles(model)
        if "unsuited" in obstacles:
            raise LabkitError(f"speed-up {name!r}: {obstacles['unsuited']}.")
        if "emulated" in obstacles and not emulate:
            raise LabkitError(
                f"speed-up {name!r}: {obstacles['emulated']}: leave it out, or emulate=True for its rounding."
            )
        if "inactive" in obstacles:
            warnings.warn(f"{name}: {obstacles['inactive']}, so it changes nothing.", stacklevel=2)
    given = [speedup for speedup in speedups if isinstance(speedup, type)]
    for speedup in given:
        bases = {*SpeedUp.__mro__, *model.step_class.__mro__}
        check_overrides(speedup, [*seams(model.step_class), "__init__"], bases, "step")
    named = [speedup for name, speedup in SPEEDUPS.items() if name in names]
    stack = [*[speedup.__name__ for speedup in given], *[speedup.name for speedup in named]]
    name = "+".join(stack) or model.step_class.__name__
    return type(name, (*given, *named, model.step_class), attributes)(model, lr=lr, betas=betas)


def seams(step_class: type[Step]) -> list[str]:
    """The methods of a step that a class can override."""
    names = (name for base in step_class.__mro__[:-1] for name in vars(base))
    return list(dict.fromkeys(name for name in names if name == "__call__" or not name.startswith("_")))


def speedups() -> pandas.DataFrame:
    """The speed-ups there are, one a row, with the name as index.

    | column | meaning |
    |---|---|
    | changes | how it differs from the baseline |
    | improves | the part of a step's time or memory that should get smaller |
    | needs | device, companions |
    | not_with | those it cannot be combined with |
    | tolerance | "exact", or "16-bit" for rounding to 16 bits |

    Example:
        >>> labkit.speedups().loc["bf16", "tolerance"]
        '16-bit'
    """
    import pandas

    rows = {
        name: {
            "changes": speedup.changes,
            "improves": speedup.improves,
            "needs": speedup.needs,
            "not_with": ", ".join(sorted(excluded(name))),
            "tolerance": speedup.tolerance,
        }
        for name, speedup in SPEEDUPS.items()
    }
    return pandas.DataFrame.from_dict(rows, orient="index")


def excluded(name: str) -> set[str]:
    """The speed-ups that cannot be combined with this one, whichever of the two says so."""
    by_others = {other for other, speedup in SPEEDUPS.items() if name in speedup.excludes}
    return by_others | SPEEDUPS[name].excludes.keys()
