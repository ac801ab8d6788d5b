"""A step out of a model and any number of speed-ups."""

from __future__ import annotations

import difflib
import importlib
import math
import pkgutil
from typing import TYPE_CHECKING

from torch import nn

import labkit.variants
from labkit.errors import LabkitError, check_known
from labkit.models.model import Model
from labkit.step import Step

if TYPE_CHECKING:
    import pandas

TABLE_COLUMNS = ("seam", "changes", "moves", "needs", "tolerance")


def known_speedups() -> dict[str, type]:
    """Speed-ups by name, outermost first: the classes with a `name` in the files of `labkit/variants/`.

    A speed-up's file is all there is to it: delete the file, and only its name disappears.
    """
    found = {}
    for module in pkgutil.iter_modules(labkit.variants.__path__):
        for speedup in vars(importlib.import_module(f"labkit.variants.{module.name}")).values():
            if isinstance(speedup, type) and "name" in vars(speedup):
                found[speedup.name] = speedup
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def make_step(
    model: nn.Module,
    *speedups: str | type,
    lr: float | None = None,
    betas: tuple[float, float] = (0.5, 0.999),
    accumulate: int | None = None,
) -> Step:
    """The training step of `model` with speed-ups stacked on it; without any, the reference's update.

    Args:
        model: a `labkit.CycleGAN` or a `labkit.DeviationGAN`.
        speedups: names from `labkit.speedups()`, or classes of your own that override a seam of
            `labkit.step.Step`. Named ones stack in one fixed order whatever the order here; your own go
            round them, the first outermost.
        lr, betas: Adam's, for every player; `lr=None` takes the model's own.
        accumulate: with a number, the speed-up "accumulate" in that many parts; by its name alone it makes two.

    Raises:
        LabkitError: a name is unknown, two of them exclude each other, or one does not suit model or device; a class
            overrides no seam; or a number is out of range.
    """
    if not isinstance(model, Model):
        raise LabkitError(f"model={model!r:.60}: give a model, such as labkit.CycleGAN().")
    if not all(0 <= rate < math.inf for rate in [*model.learning_rates().values(), 0.0 if lr is None else lr]):
        raise LabkitError(f"lr={lr}: a learning rate is a positive number, such as 2e-4.")
    if not all(0 <= beta < 1 for beta in betas):
        raise LabkitError(f"betas={betas}: each is at least 0 and less than 1.")
    known = known_speedups()
    names = [name for name in speedups if not isinstance(name, type)]
    attributes = {}
    if accumulate is not None:
        if accumulate < 1:
            raise LabkitError(f"accumulate={accumulate}: a batch is computed in at least one part.")
        names.append("accumulate")
        attributes["parts"] = accumulate
    for name in names:
        check_known("speed-up", name, known)
        for other, reason in known[name].excludes.items():
            if other in names:
                raise LabkitError(f"speed-ups {name!r} and {other!r} exclude each other: {reason}. Leave one out.")
        if reason := known[name].unsuited(model):
            raise LabkitError(f"speed-up {name!r}: {reason}.")
    own = [speedup for speedup in speedups if isinstance(speedup, type)]
    for speedup in own:
        _check_overrides(speedup)
    if len(set(own)) < len(own):
        raise LabkitError("a class of your own is named twice: it can be stacked once.")
    named = [speedup for name, speedup in known.items() if name in names]
    return type("Step", (*own, *named, Step), attributes)(model, lr=lr, betas=betas)


def _check_overrides(speedup: type) -> None:
    """Raises `LabkitError` if a class overrides nothing of a step, perhaps since a name is misspelt."""
    seams = [name for name in vars(Step) if name == "__call__" or not name.startswith("_")]
    own = {name for base in speedup.__mro__[:-1] for name in vars(base)}
    if own.isdisjoint([*seams, "__init__"]):
        spelt = sorted(name for name in own if not name.startswith("__"))
        close = [match for name in spelt for match in difflib.get_close_matches(name, seams, n=1)]
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise LabkitError(
            f"{speedup.__name__} overrides nothing of a step, so it would change nothing.{hint} "
            f"There are: {', '.join(seams)}."
        )


def speedups() -> pandas.DataFrame:
    """The speed-ups there are, one a row: its name, the seam it changes, what it changes there, which part of a
    step's time it should move, what it needs, and how far its results may be from the baseline's."""
    import pandas

    rows = {name: [getattr(speedup, column) for column in TABLE_COLUMNS] for name, speedup in known_speedups().items()}
    return pandas.DataFrame.from_dict(rows, orient="index", columns=TABLE_COLUMNS)
