"""A training run: the record of it that `labkit.fit` keeps, returns, and shows to callbacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from labkit.errors import TrainingError
from labkit.models.model import Model
from labkit.models.step import Step


@dataclass
class Run:
    """A training run: where it stands, and every loss of every step so far.

    Attributes:
        step: the step that is trained with; its `model` is the run's.
        steps: the step to train up to.
        folder: of checkpoint and sample pictures; None if neither is kept.
        done: steps done, those before resuming included.
        saved: the step of the newest checkpoint; 0 if there is none.
        losses: by name, one number for each step that was looked at; NaN for steps without a loss of this name.
        rates: the learning rate of each player, as many numbers; NaN for steps whose checkpoint did not know them.
    """

    step: Step
    steps: int
    folder: Path | None = None
    done: int = 0
    saved: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    pending: list[tuple[dict[str, Tensor], dict[str, float]]] = field(default_factory=list, repr=False)

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.step.model

    def add(self, losses: dict[str, Tensor]) -> None:
        """Counts a step. Its losses stay on the device until somebody looks, so that no step waits for it."""
        self.done += 1
        self.pending.append((losses, dict(self.step.lr_now)))

    def look(self) -> None:
        """Moves the losses of the steps since the last look into the history: the loop's only wait for the device.

        Raises:
            TrainingError: a loss is not finite; the steps before it are in the history.
        """
        if not self.pending:
            return
        names = list(dict.fromkeys(name for losses, _ in self.pending for name in losses))
        absent = torch.full_like(next(iter(self.pending[0][0].values())), torch.nan)
        rows = torch.stack([torch.stack([losses.get(name, absent) for name in names]) for losses, _ in self.pending])
        pending, self.pending = self.pending, []
        for i, (row, (losses, rates)) in enumerate(zip(rows.tolist(), pending, strict=True)):
            number, values = self.done - len(pending) + i, dict(zip(names, row, strict=True))
            bad = [name for name in losses if not abs(values[name]) < float("inf")]
            if bad:
                raise TrainingError(
                    f"step {number + 1}: {', '.join(bad)} is no longer a finite number, so training stopped."
                    f"{self.kept()} Usual causes: a learning rate that is too high, or 16-bit arithmetic without loss "
                    "scaling. Fix the cause and rerun the same command: training resumes from the last checkpoint, or "
                    "restarts if there is none."
                )
            for history, of_step in ((self.losses, values), (self.rates, rates)):
                for name in {**history, **of_step}:  # in the order in which they came
                    history.setdefault(name, [torch.nan] * number).append(of_step.get(name, torch.nan))

    def kept(self) -> str:
        """The end of an error's message: where the run can go on from."""
        return f" The last good checkpoint is kept in {self.folder}." if self.saved else " Nothing was saved before it."
