"""An entry to the speedrun: a file with a function `entry`, which says what is trained, and for how long."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from labkit.errors import LabkitError
from labkit.models.model import Model

SIZE = 64  # pixels of the pictures to train on, and of those that are judged


@dataclass(frozen=True)
class Entry:
    """What the function `entry(device)` of an entry's file returns.

    Attributes:
        model: its ``translator("AtoB")`` turns apples into oranges; it is what gets judged.
        step: called with each batch: real_a and real_b, (batch_size, 3, 64, 64) in [-1, 1]. A `labkit.Step`, or any
            function; it updates the model.
        steps: calls of `step`.
        batch_size: pictures of each domain in a batch.
        pictures: training pictures of each domain. They are painted when they are first used, which takes time too.
        schedule: from the number of steps done to the factor on the learning rate; needs a `labkit.Step`.
    """

    model: Model
    step: Callable[[Tensor, Tensor], Any]
    steps: int
    batch_size: int = 1
    pictures: int = 1000
    schedule: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "pictures"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise LabkitError(f"{name}={value!r}: give a whole number of at least 1.")
        if not isinstance(self.model, Model):
            raise LabkitError(f"model={self.model!r:.60}: give a labkit.CycleGAN, a DeviationGAN, or a class on Model.")
        if not callable(self.step):
            raise LabkitError(f"step={self.step!r:.60}: give a step, or a function of real_a and real_b.")
        if self.schedule is not None and not hasattr(self.step, "scale_lr"):
            raise LabkitError("schedule: this step is no labkit.Step, and has no learning rate that could follow it.")


def load(file: Path | str, device: str) -> Entry:
    """Runs an entry's file, and its function `entry`.

    Raises:
        LabkitError: there is no such function, or it returns something else.
    """
    make = runpy.run_path(str(file), run_name="entry").get("entry")
    if not callable(make):
        raise LabkitError(f"{file}: there is no function `entry` in it. Define entry(device), which returns an Entry.")
    made = make(device)
    if not isinstance(made, Entry):
        raise LabkitError(f"{file}: entry({device!r}) returned {made!r:.60}. Return a labkit.speedrun.Entry.")
    return made
