"""Whether two training steps compute the same: the judge of `labkit.compare`, of the survey and of the tests."""

from __future__ import annotations

import copy
import functools
import math
import traceback
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.record import Batch, preserving_state
from labkit.measure.roofline import step_flops
from labkit.models.step import Step
from labkit.variants.registry import make_step

# How far a step in 16 bits may be from the baseline: losses, relative (the losses of small pictures, which a
# discriminator judges in few patches, differ by up to 3%); the cosine of a player's gradient with the baseline's, and
# the gradient's length.
LOSSES, LEAST_COSINE, LENGTH = 5e-2, 0.9, 0.1
# And after three updates: losses again (seen: up to 8%), and how far each player's weights have moved (up to 0.7%).
THIRD, MOVED = 0.25, 0.05


class Distance(NamedTuple):
    """How far a first step is from another; NaN if a loss or gradient is missing or is not a number.

    losses: the largest relative difference. gradients: the largest ||difference|| / ||gradient|| of a network.
    cosine: the smallest between the two gradients of a network.
    """

    losses: float
    gradients: float
    cosine: float


class FirstStep(NamedTuple):
    """The losses of one step, by name; the gradient of each network, as one float64 vector on the host; and the names
    of each player's networks."""

    losses: dict[str, float]
    gradients: dict[str, Tensor]
    players: dict[str, list[str]]

    def by_player(self) -> FirstStep:
        """The same with one gradient for each player, over all its networks."""
        joined = {player: torch.cat([self.gradients[name] for name in own]) for player, own in self.players.items()}
        return FirstStep(self.losses, joined, {player: [player] for player in joined})

    def distance(self, other: FirstStep) -> Distance:
        """How far this step is from the `other`, whose losses and gradients are the reference."""
        losses = _pairs(self.losses, other.losses)
        gradients = _pairs(self.gradients, other.gradients)
        return Distance(
            _largest(relative(*pair) for pair in losses),
            _largest(((mine - right).norm() / right.norm()).item() for mine, right in gradients),
            -_largest(-torch.cosine_similarity(mine, right, dim=0).item() for mine, right in gradients),
        )


def first_step(step: Step, batch: Batch, name: str = "given") -> FirstStep:
    """Runs the step once, and keeps each network's gradient, unscaled, at the moment its optimiser steps.

    Raises:
        LabkitError: the step fails, or returns no losses; the message calls it by its `name`.
    """
    gradients: dict[str, Tensor] = {}
    players: dict[str, list[str]] = {}

    def keep(player: str, *_: object) -> None:
        learning, scaler = set(step.players[player]), getattr(step, "scaler", None)
        networks = {name: list(network.parameters()) for name, network in step.model.named_children()}
        own = {name: weights for name, weights in networks.items() if weights and learning.issuperset(weights)}
        players[player] = list(own)
        for name, weights in own.items():
            parts = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
            gradients[name] = _vector(parts).double() / (scaler.get_scale() if scaler else 1.0)

    with ExitStack() as hooks:  # a hook works whatever the step's class
        for player, optimizer in step.optimizers.items():
            hooks.enter_context(optimizer.register_step_pre_hook(functools.partial(keep, player)))
        return FirstStep(losses_of(step, batch, name), gradients, players)


def worst_distance(step: Step, baseline: Step, batches: Iterable[Batch]) -> Distance:
    """The largest distance over several batches, each from the steps' present state: a race shows only now and then."""
    found = []
    for batch in batches:
        with preserving_state(step), preserving_state(baseline):
            found.append(first_step(step, batch).distance(first_step(baseline, batch)))
    losses, gradients, cosines = zip(*found, strict=True)
    return Distance(_largest(losses), _largest(gradients), -_largest(-cosine for cosine in cosines))


def drift(step: Step, baseline: Step, batches: Iterable[Batch], together: int = 50) -> float:
    """The largest relative difference of any loss in a run over `batches`, which changes both steps.

    Training magnifies every difference, so that after 200 steps rounding alone would leave nothing to compare. So after
    every `together` batches the baseline goes on from the step's state. The `step` itself is never interrupted.
    """
    differences = []
    for number, batch in enumerate(batches):
        if number and number % together == 0:
            baseline.load_state_dict(copy.deepcopy(step.state_dict()))
        seen, right = losses_of(step, batch, "given"), losses_of(baseline, batch, "baseline")
        differences.append(_largest(relative(*pair) for pair in _pairs(seen, right)))
    return _largest(differences)


class FirstUpdates:
    """The first three updates of a step: what they compute, to compare with the baseline's, and what they take.

    One alone would not do: "graph" replays from the third on, and an update that is skipped or added may show only
    later. After the `first` step come the losses of the `third`, the distance by which each player's weights have
    `moved` by then, and the `peak_bytes` of the second and third (NaN on a CPU). `start` holds the weights before, on
    the host. `flops` are those of a plain step of the same model: what a speed-up computes twice is no progress.

    Raises:
        LabkitError: the step fails, or returns no losses.
    """

    def __init__(self, step: Step, batch: Batch, name: str) -> None:
        self.step = step
        plain = copy.deepcopy(step.model).requires_grad_(True)  # as if no network were frozen
        self.flops = step_flops(make_step(plain), batch)
        self.networks = {weight: tuple(value.shape) for weight, value in step.model.state_dict().items()}
        on_gpu = batch[0].is_cuda
        self.start = {name: own.detach().to("cpu", copy=True) for name, own in step.model.named_parameters()}
        start = self._weights()
        self.first = first_step(step, batch, name)
        after_first = self._sums()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        losses_of(step, batch, name)
        self.third = losses_of(step, batch, name)
        self.peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else math.nan
        self.moved = {player: (now - start[player]).norm().item() for player, now in self._weights().items()}
        self.stuck = [player for player, total in self._sums().items() if total == after_first[player]]

    def _weights(self) -> dict[str, Tensor]:
        """Each player's, as one vector on the host: the device's memory is for the step."""
        return {player: _vector(own) for player, own in self.step.players.items()}

    def _sums(self) -> dict[str, float]:
        """For each player the sum of its weights, which changes when they do."""
        return {player: weights.sum(dtype=torch.float64).item() for player, weights in self._weights().items()}

    def difference(self, baseline: FirstUpdates) -> str | None:
        """How these updates differ from the baseline's by more than 16-bit rounding explains, or None."""
        mine, right = self.first.by_player(), baseline.first.by_player()
        if reason := other_names(mine.losses, right.losses):
            return reason
        for name, loss in right.losses.items():
            if not relative(mine.losses[name], loss) <= LOSSES:
                return f"{name} is {mine.losses[name]:.4g}, the baseline's {loss:.4g}"
        for player, right_gradient in right.gradients.items():
            if player not in mine.gradients:
                return f"the {player} do not learn"
            gradient = mine.gradients[player]
            cosine = torch.cosine_similarity(gradient, right_gradient, dim=0).item()
            length = (gradient.norm() / right_gradient.norm()).item()
            if not cosine >= LEAST_COSINE:
                return f"the gradients of the {player} point elsewhere (cosine {cosine:.2f})"
            if not abs(length - 1) <= LENGTH:
                return f"the gradients of the {player} are {length:.3g} times as long"
        if bad := [name for name, loss in self.third.items() if not math.isfinite(loss)]:
            return f"{', '.join(bad)} became nan or infinite"
        if stuck := [player for player in self.stuck if player not in baseline.stuck]:
            return f"after its first update the {', '.join(stuck)} no longer learn"
        for player, distance in baseline.moved.items():
            if not relative(self.moved[player], distance) <= MOVED:
                return f"three updates move the {player} by {self.moved[player]:.4g}, the baseline's by {distance:.4g}"
        for name, loss in baseline.third.items():
            value = self.third.get(name, math.nan)
            if not relative(value, loss) <= THIRD:
                return f"in its third step {name} is {value:.4g}, the baseline's {loss:.4g}"
        return None


def other_names(mine: dict[str, float], right: dict[str, float]) -> str | None:
    """Losses that a step leaves out, or adds, beside the right ones; None if the names are the same."""
    if missing := [name for name in right if name not in mine]:
        return f"it leaves out {', '.join(missing)}"
    if added := [name for name in mine if name not in right]:
        return f"it adds {', '.join(added)}"
    return None


def relative(value: float, right: float) -> float:
    """The difference as a share of the right value; 0 if both are 0, as a deviation loss is at first."""
    return 0.0 if value == right else abs(value - right) / (abs(right) or math.nan)


def losses_of(step: Step, batch: Batch, name: str) -> dict[str, float]:
    """Runs the step once; its losses as numbers.

    Raises:
        NeverLearns: the step fails since a player of it cannot learn.
        LabkitError: it fails for another reason, or returns no losses; the message calls it by its `name`.
    """
    try:
        return {loss: value.item() for loss, value in step(*batch).items()}
    except (LabkitError, *OUT_OF_MEMORY):
        raise
    except Exception as error:
        if reason := cannot_learn(step, error):
            raise NeverLearns(f"step {name!r}: {reason}") from error
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise LabkitError(
            f"step {name!r} fails ({type(error).__name__}: {error}; {where.filename}, line {where.lineno}). "
            "It should take two batches and return its losses by name, as labkit's own steps do."
        ) from error


class NeverLearns(LabkitError):
    """A step whose error comes from a player that cannot learn: labkit's own line, which fails, is not to blame."""


def cannot_learn(step: Step, error: Exception) -> str | None:
    """Which player's losses or weights autograd or an optimiser cannot do anything with, and why; None if all can."""
    for player, weights in step.players.items():
        if player not in step.optimizers:
            return f"the {player} never learn: `build` makes no optimiser for them"
        frozen = {weight for weight in weights if not weight.requires_grad}
        networks = [name for name, own in step.model.named_children() if frozen.intersection(own.parameters())]
        if networks:
            return f"the {player} never learn: weights of {', '.join(networks)} are frozen (requires_grad is False)"
    calls = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    players = [own["player"] for own in calls if isinstance(own.get("player"), str)]
    if players and "does not require grad" in str(error):
        return f"the {players[-1]} never learn: their losses are cut off from their weights (detach, or torch.no_grad)"
    return None


def _vector(tensors: Iterable[Tensor]) -> Tensor:
    """All the numbers as one vector, on the host."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).cpu()


def _pairs(mine: dict[str, Any], right: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The two values of every name; none at all if the names differ."""
    return [(mine[name], right[name]) for name in right] if mine.keys() == right.keys() else []


def _largest(numbers: Iterable[float]) -> float:
    """The largest number; NaN if there is none, or one of them is NaN."""
    numbers = list(numbers)
    return max(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan
