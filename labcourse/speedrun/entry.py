"""An entry to the speedrun: a file with a function `entry`, which says what is trained, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from labkit.models.model import Model

SIZE = 64  # pixels of the pictures to train on, and of those that are judged


@dataclass(frozen=True)
class Entry:
    """What the function `entry(device)` of an entry's file returns.

    Attributes:
        model: its ``translator("AtoB")`` turns apples into oranges, and is what gets judged.
        step: called with each batch: real_a and real_b, (batch_size, 3, 64, 64) in [-1, 1]. A `labkit.Step`, or any
            function that updates the model.
        steps: calls of `step`.
        batch_size: pictures of each domain in a batch.
        pictures: training pictures of each domain. They are painted when they are first used, which takes time too.
        schedule: from the number of steps done to the factor on the learning rate. It needs a `labkit.Step`.
    """

    model: Model
    step: Callable[[Tensor, Tensor], Any]
    steps: int
    batch_size: int = 1
    pictures: int = 1000
    schedule: Callable[[int], float] | None = None
