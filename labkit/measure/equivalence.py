"""Whether two training steps compute the same, from their first three updates and from how they end."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.record import Batch
from labkit.measure.timing import PeakMemory
from labkit.step import Step

# How far a step in 16 bits may be from the baseline: losses, relative (those of small pictures, which a discriminator
# judges in few patches, are off by up to 3%); the cosine of a player's gradient with the baseline's, and its length.
LOSSES, LEAST_COSINE, LENGTH = 5e-2, 0.9, 0.1
# And after three updates: losses again (seen: up to 8%), and how far each player's weights have moved (up to 0.7%).
THIRD, MOVED = 0.25, 0.05


class Update:
    """The first update of a step: its losses, by name, and the gradient of each player, as one vector, unscaled.

    Then two more, since "graph" replays from the third on, and what a step skips or adds may show only later: the
    losses of the `third`, and how far each player's weights have `moved` by then.

    Raises:
        LabkitError: the step fails, or returns no losses.
    """

    def __init__(self, step: Step, batch: Batch, name: str) -> None:
        self.step, self.batch, self.name = step, batch, name
        self.networks = {weight: tuple(value.shape) for weight, value in step.model.state_dict().items()}
        self.gradients: dict[str, Tensor] = {}
        start = self._weights()
        with self._watching():
            self.losses = self._run()
        self.sums = self._sums()
        with PeakMemory() as peak:
            self._run()
            self.third = self._run()
        self.peak_bytes = peak.bytes
        self.moved = {player: (now - start[player]).norm().item() for player, now in self._weights().items()}

    def _weights(self) -> dict[str, Tensor]:
        """Each player's, as one vector, off the device: its memory is for what is measured."""
        players = self.step.players.items()
        return {player: torch.cat([weight.detach().flatten() for weight in of_it]).cpu() for player, of_it in players}

    def _run(self) -> dict[str, float]:
        try:
            losses = self.step(*self.batch)
            return {name: loss.item() for name, loss in losses.items()}
        except (LabkitError, *OUT_OF_MEMORY):
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise LabkitError(
                f"step {self.name!r} fails ({type(error).__name__}: {error}; {where.filename}, line {where.lineno}). "
                "It should take two batches and return its losses by name, as labkit's own steps do."
            ) from error

    def _sums(self) -> dict[str, float]:
        """A number for the weights of each player, which changes when they do."""
        with torch.no_grad():
            return {
                player: torch.stack([weight.double().sum() for weight in weights]).sum().item()
                for player, weights in self.step.players.items()
            }

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Inside, keeps each player's gradient the moment its optimiser steps, whatever the step's class."""

        def keep(player: str) -> Callable:
            def hook(*_: object) -> None:
                weights = self.step.players[player]
                scale = self.step.scaler.get_scale() if hasattr(self.step, "scaler") else 1.0
                gradient = torch.cat([weight.grad.detach().double().flatten() for weight in weights])
                self.gradients[player] = gradient.cpu() / scale

            return hook

        optimizers = self.step.optimizers.items()
        hooks = [optimizer.register_step_pre_hook(keep(player)) for player, optimizer in optimizers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def distance(self, other: Update) -> dict[str, float]:
        """loss_difference, the largest relative one; gradient_cosine, the smallest; NaN if one of them is."""
        differences = [_relative(self.losses[name], other.losses[name]) for name in self._shared(other)]
        cosines = [cosine for cosine, _ in self._angles(other).values()]
        return {
            "loss_difference": math.nan if not differences or any(map(math.isnan, differences)) else max(differences),
            "gradient_cosine": math.nan if not cosines or any(map(math.isnan, cosines)) else min(cosines),
        }

    def _shared(self, other: Update) -> list[str]:
        return [name for name in self.losses if name in other.losses]

    def _angles(self, other: Update) -> dict[str, tuple[float, float]]:
        """For each player the cosine of its gradient with the other's, and how many times as long it is."""
        return {
            player: (
                torch.cosine_similarity(gradient, other.gradients[player], dim=0).item(),
                (gradient.norm() / other.gradients[player].norm()).item(),
            )
            for player, gradient in self.gradients.items()
            if player in other.gradients
        }

    def difference(self, baseline: Update) -> str | None:
        """In what this is not the baseline's equal, in words; None if it is."""
        if missing := [name for name in baseline.losses if name not in self.losses]:
            return f"it leaves out {', '.join(missing)}"
        if added := [name for name in self.losses if name not in baseline.losses]:
            return f"it adds {', '.join(added)}"
        for name, right in baseline.losses.items():
            if not _relative(self.losses[name], right) <= LOSSES:
                return f"{name} is {self.losses[name]:.4g}, the baseline's {right:.4g}"
        if idle := [player for player in baseline.gradients if player not in self.gradients]:
            return f"the {', '.join(idle)} do not learn"
        for player, (cosine, length) in self._angles(baseline).items():
            if not cosine >= LEAST_COSINE:
                return f"the gradients of the {player} point elsewhere (cosine {cosine:.2f})"
            if not abs(length - 1) <= LENGTH:
                return f"the gradients of the {player} are {length:.3g} times as long"
        return None

    def later(self, baseline: Update) -> str | None:
        """What has gone wrong with the step since, in words; None if it still learns, and began as the baseline did."""
        if bad := [name for name, loss in self._run().items() if not math.isfinite(loss)]:
            return f"{', '.join(bad)} became nan or infinite"
        now = self._sums()
        if stuck := [player for player in self.gradients if now[player] == self.sums[player]]:
            return f"after its first update the {', '.join(stuck)} no longer learn"
        for player, right in baseline.moved.items():
            if not _relative(self.moved[player], right) <= MOVED:
                return f"three updates move the {player} by {self.moved[player]:.4g}, the baseline's by {right:.4g}"
        for name, right in baseline.third.items():
            value = self.third.get(name, math.nan)
            if not _relative(value, right) <= THIRD:
                return f"in its third step {name} is {value:.4g}, the baseline's {right:.4g}"
        return None


def _relative(value: float, right: float) -> float:
    """How far a number is off; of two zeros, not at all."""
    return 0.0 if value == right else abs(value - right) / (abs(right) or math.nan)
