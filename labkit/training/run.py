"""A training run: the record of it that `labkit.fit` keeps, returns, and shows to callbacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from labkit.model import Model
from labkit.step import Step


@dataclass
class Run:
    """A training run: where it stands, and every loss of every step so far.

    Attributes:
        step: the step that is trained with; its `model` is the run's.
        steps: the step to train up to.
        folder: of checkpoint and sample pictures; None if neither is kept.
        done: steps done, those before resuming included.
        losses: by name, one number for each step that was looked at; NaN for steps without a loss of this name.
        rates: the learning rate of each player, as many numbers; NaN for steps whose checkpoint did not know them.
    """

    step: Step
    steps: int
    folder: Path | None = None
    done: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.step.model
