"""One call of a step, and the state that it leaves behind: weights, optimisers, running statistics and pools."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from labkit.devices import OUT_OF_MEMORY
from labkit.errors import LabkitError
from labkit.measure.record import Pair
from labkit.models.step import Step

ADAM_SETTINGS = ("betas", "eps", "weight_decay", "amsgrad", "maximize")
ADAM_STATE = {"step", "exp_avg", "exp_avg_sq"}
LEAST_ROUNDED = 16  # numbers: one in 4096 has 12 zeros at the end by chance


def take_step(step: Step, batch: Pair, name: str) -> dict[str, Tensor]:
    """Runs the step once. Losses may be numbers of Python; what else it returns, of several numbers, is left out.

    Raises:
        LabkitError: the step fails, or returns no losses. The message has the step's `name` and the player that fails.
    """
    try:
        losses = {loss: torch.as_tensor(value) for loss, value in step(*batch).items()}
        return {loss: value for loss, value in losses.items() if value.numel() == 1}
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
    """A CPU copy of a step's state: tensors by the name of the weight, numbers by a description in words."""

    weights: dict[str, Tensor]
    means: dict[str, Tensor]  # Adam's first moments, if it is PyTorch's Adam; else the weights alone are compared
    squares: dict[str, Tensor]  # its second moments
    buffers: dict[str, Tensor]  # batch norm's running statistics, which only translating uses
    counts: dict[str, int]  # Adam's steps, and the batches that batch norm has seen
    settings: dict[str, Any]  # of optimisers and pools
    pools: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, step: Step) -> State:
        """The state that `step` is in."""
        named = dict(step.model.named_parameters())
        adams = [optimizer for optimizer in step.optimizers.values() if "betas" in optimizer.param_groups[0]]
        kept = {weight: own for optimizer in adams for weight, own in optimizer.state.items()}
        adam = {name: kept[one] for name, one in named.items() if ADAM_STATE <= kept.get(one, {}).keys()}
        buffers = dict(step.model.named_buffers())
        settings: dict[str, Any] = {f"size of the pool {name}": pool.size for name, pool in step.model.pools.items()}
        for player, optimizer in step.optimizers.items():
            group = optimizer.param_groups[0]
            settings[f"learning rate of the {player}"] = float(str(numpy.float32(float(group["lr"]))))  # as in a graph
            settings |= {f"{name} of the {player}": group[name] for name in ADAM_SETTINGS if name in group}
        return cls(
            {name: host(weight) for name, weight in named.items()},
            {name: host(own["exp_avg"]) for name, own in adam.items()},
            {name: host(own["exp_avg_sq"]) for name, own in adam.items()},
            {name: host(buffer) for name, buffer in buffers.items() if buffer.is_floating_point()},
            {f"number of Adam's steps for {name}": int(own["step"]) for name, own in adam.items()}
            | {name: int(buffer) for name, buffer in buffers.items() if name.endswith("num_batches_tracked")},
            settings,
            {name: pool.state_dict() for name, pool in step.model.pools.items()},
        )


def displacements(before: State, after: State) -> dict[str, Tensor]:
    """How far each weight has moved."""
    return {name: weight - before.weights[name] for name, weight in after.weights.items()}


def rounded(state: State) -> list[str]:
    """The weights and moments, in words, whose numbers have no more digits than those of a 16-bit type.

    float16 and TF32 have 10 binary digits after the first one, and bfloat16 has 7, of float32's 23. Biases are left
    out: the gradient of one in front of a norm is rounding alone, which has few digits by itself.
    """
    found = []
    parts = {"weight": state.weights, "Adam's first moment of": state.means, "Adam's second moment of": state.squares}
    for what, by_name in parts.items():
        for name, values in by_name.items():
            if values.dim() < 2:
                continue
            digits = values[values != 0].view(torch.int32) if values.dtype == torch.float32 else values[:0]
            short = len(digits) >= LEAST_ROUNDED and not (digits & 0xFFF).any()
            if short or values.dtype in (torch.float16, torch.bfloat16):
                found.append(f"{what} {name}")
    return found


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
