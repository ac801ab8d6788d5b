"""The history of a run: the losses of every step, fetched from the device now and then, and checked."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.errors import TrainingError
from labkit.training.keeping import kept
from labkit.training.run import Run


class Pending:
    """Losses of steps that nobody has looked at yet: they stay on the device, so that no step waits for it."""

    def __init__(self, run: Run):
        self.run = run
        self.losses: list[dict[str, Tensor]] = []
        self.rates: list[dict[str, float]] = []

    def add(self, losses: dict[str, Tensor]) -> None:
        """Notes the losses and the learning rates of a step."""
        self.losses.append(losses)
        self.rates.append(dict(self.run.step.lr_now))

    def look(self) -> None:
        """Moves all of them into the run's history: the loop's only wait for the device.

        Raises:
            TrainingError: a loss is not finite; the steps before it are in the history.
        """
        if not self.losses:
            return
        names = list(dict.fromkeys(name for losses in self.losses for name in losses))
        absent = torch.full_like(next(iter(self.losses[0].values())), torch.nan)
        rows = torch.stack([torch.stack([losses.get(name, absent) for name in names]) for losses in self.losses])
        steps, run = list(zip(self.losses, rows.tolist(), self.rates, strict=True)), self.run
        self.losses, self.rates = [], []
        for number, (losses, row, rate) in enumerate(steps, start=run.done - len(steps) + 1):
            values = dict(zip(names, row, strict=True))
            bad = [name for name in losses if not abs(values[name]) < float("inf")]
            if bad:
                raise TrainingError(
                    f"step {number}: {', '.join(bad)} is no longer a finite number, so training stopped.{kept(run)} "
                    "Usual causes: a learning rate that is too high, or 16-bit arithmetic without loss scaling. Fix "
                    "the cause and rerun the same command: training resumes from the last checkpoint, or restarts if "
                    "there is none."
                )
            for history, of_step in ((run.losses, values), (run.rates, rate)):
                for name in {**history, **of_step}:  # in the order in which they came
                    history.setdefault(name, [torch.nan] * (number - 1)).append(of_step.get(name, torch.nan))
