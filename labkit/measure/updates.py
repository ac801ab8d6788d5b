"""What one update of a training step computes: losses, gradients, the ways of the weights, and the state after it."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from labkit.devices import OUT_OF_MEMORY
from labkit.measure.record import Pair
from labkit.models.step import Step
from labtrace.errors import LabkitError

Gradients = dict[str, Tensor]  # by the name of the weight
SETTINGS = ("betas", "eps", "weight_decay", "amsgrad", "maximize")  # of Adam


def run(step: Step, batch: Pair, name: str) -> dict[str, Tensor]:
    """Runs the step once.

    Raises:
        LabkitError: it fails, or returns no losses. The message calls it by its `name`, and says in which player it
            fails.
    """
    try:
        return dict(step(*batch).items())
    except (LabkitError, *OUT_OF_MEMORY):
        raise
    except Exception as error:
        frames = list(traceback.walk_tb(error.__traceback__))
        players = [frame.f_locals["player"] for frame, _ in frames if isinstance(frame.f_locals.get("player"), str)]
        frame, line = frames[-1]
        raise LabkitError(
            f"step {name!r} fails{f' in the {players[-1]}' if players else ''} ({type(error).__name__}: {error}; "
            f"{frame.f_code.co_filename}, line {line}). It should take two batches and return its losses by name, as "
            "labkit's own steps do."
        ) from error


class State(NamedTuple):
    """A CPU copy of a step's state: tensors by the name of the weight, numbers by what they are in words."""

    weights: dict[str, Tensor]  # not batch norm's running statistics, which training does not use
    means: dict[str, Tensor]  # Adam's moments, of PyTorch's own Adam; another optimiser is judged by the weights alone
    counts: dict[str, int]  # Adam's steps
    settings: dict[str, Any]  # of optimisers and pools
    pools: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, step: Step) -> State:
        """The state that `step` is in."""
        named = dict(step.model.named_parameters())
        kept = {weight: own for optimizer in step.optimizers.values() for weight, own in optimizer.state.items()}
        adam = {name: kept[weight] for name, weight in named.items() if "exp_avg_sq" in kept.get(weight, {})}
        settings: dict[str, Any] = {f"size of the pool {name}": pool.size for name, pool in step.model.pools.items()}
        for player, optimizer in step.optimizers.items():
            group = optimizer.param_groups[0]
            settings[f"learning rate of the {player}"] = float(str(numpy.float32(float(group["lr"]))))  # as in a graph
            settings |= {f"{name} of the {player}": group[name] for name in SETTINGS if name in group}
        return cls(
            {name: host(weight) for name, weight in named.items()},
            {name: host(own["exp_avg"]) for name, own in adam.items()},
            {f"number of Adam's steps for {name}": int(own["step"]) for name, own in adam.items()},
            settings,
            {name: pool.state_dict() for name, pool in step.model.pools.items()},
        )


class Distance(NamedTuple):
    """How far an update is from another, NaN if a loss or gradient is missing or is not a number.

    losses: the largest relative difference. gradients: the largest ||difference|| / ||gradient|| of a network.
    cosine: the smallest between the two gradients of a network.
    """

    losses: float
    gradients: float
    cosine: float


class Update(NamedTuple):
    """One update. All tensors are on the CPU, keyed by parameter name."""

    losses: dict[str, float]
    gradients: Gradients  # that PyTorch's Adam was given; empty for another optimiser
    moved: dict[str, Tensor]  # the way that each weight went
    after: State

    @classmethod
    def of(cls, step: Step, batch: Pair, name: str = "given") -> Update:
        """Runs the step once, always with the same random numbers.

        Raises:
            LabkitError: as `run`.
        """
        torch.manual_seed(0)
        before = State.of(step)
        losses = {loss: value.item() for loss, value in run(step, batch, name).items()}
        after = State.of(step)
        beta = next(iter(step.optimizers.values())).param_groups[0].get("betas", (0.0,))[0]
        gradients = {  # from the change of Adam's mean, which is so in a CUDA graph as well
            weight: (mean - beta * before.means.get(weight, torch.zeros_like(mean))) / (1 - beta)
            for weight, mean in after.means.items()
        }
        moved = {weight: value - before.weights[weight] for weight, value in after.weights.items()}
        return cls(losses, gradients, moved, after)

    def distance(self, right: Update) -> Distance:
        """How far this update is from the `right` one."""
        networks = by_network(right.gradients).values() if self.gradients.keys() == right.gradients.keys() else []
        pairs = [(vector(self.gradients, like), vector(like, like)) for like in networks]
        losses = [relative(self.losses.get(name, math.nan), loss) for name, loss in right.losses.items()]
        apart = [((mine - its).norm() / its.norm()).item() for mine, its in pairs]
        cosines = [torch.cosine_similarity(mine, its, dim=0).item() for mine, its in pairs]
        return Distance(_worst(max, losses), _worst(max, apart), _worst(min, cosines))


def _worst(choose: Callable[[list[float]], float], numbers: list[float]) -> float:
    return choose(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan


def relative(value: float, right: float) -> float:
    """The difference as a share of the right value, or 0 if both are 0, as a deviation loss is at first."""
    return 0.0 if value == right else abs(value - right) / (abs(right) or math.nan)


def host(tensor: Tensor) -> Tensor:
    """A copy on the CPU."""
    return tensor.detach().to("cpu", copy=True)


def by_network(by_name: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The tensors of each network, by its name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in by_name.items():
        parts.setdefault(name.partition(".")[0], {})[name] = value
    return parts


def vector(by_name: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Tensor:
    """The values of the weights in `like` as one vector, with zeros for a weight without a value."""
    return torch.cat([by_name.get(name, torch.zeros_like(part)).flatten().double() for name, part in like.items()])
