"""One call of a step, and the state that it leaves behind: weights, optimisers, running statistics and pools."""

from __future__ import annotations

import copy
import traceback
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
LAST_DIGITS = 0xFF  # a float32 has 24 binary digits. The last 8 are all zeros in one number of 256 by chance ...
MOST_ROUNDED = 1 / 8  # ... and in so large a share of at least ...
LEAST_NUMBERS = 32  # ... so many numbers by chance never


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
            f"{frame.f_code.co_filename}, line {line}). It takes two batches and returns its losses by name."
        ) from error


class State(NamedTuple):
    """A CPU copy of a step's state: tensors by the name of the weight, numbers by a description in words."""

    weights: dict[str, Tensor]
    means: dict[str, Tensor]  # Adam's first moments, as far as the optimiser names them as PyTorch's Adam does
    squares: dict[str, Tensor]  # its second moments
    buffers: dict[str, Tensor]  # batch norm's running statistics, which only translating uses
    counts: dict[str, int]  # Adam's steps, and the batches that batch norm has seen
    settings: dict[str, Any]  # of optimisers and pools
    pools: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, step: Step) -> State:
        """The state that `step` is in."""
        adam, buffers = moments(step), dict(step.model.named_buffers())
        settings: dict[str, Any] = {f"size of the pool {name}": pool.size for name, pool in step.model.pools.items()}
        for player, optimizer in step.optimizers.items():
            group = optimizer.param_groups[0]
            settings[f"learning rate of the {player}"] = float(str(numpy.float32(float(group["lr"]))))  # as in a graph
            settings |= {f"{name} of the {player}": group[name] for name in ADAM_SETTINGS if name in group}
        return cls(
            {name: host(weight) for name, weight in step.model.named_parameters()},
            {name: host(own["exp_avg"]) for name, own in adam.items()},
            {name: host(own["exp_avg_sq"]) for name, own in adam.items()},
            {name: host(buffer) for name, buffer in buffers.items() if buffer.is_floating_point()},
            {f"number of Adam's steps for {name}": int(own["step"]) for name, own in adam.items()}
            | {name: int(buffer) for name, buffer in buffers.items() if name.endswith("num_batches_tracked")},
            settings,
            {name: pool.state_dict() for name, pool in step.model.pools.items()},
        )


def moments(step: Step) -> dict[str, dict[str, Any]]:
    """What Adam keeps of each weight that has learned, by its name. Optimisers with other names for it are left out."""
    adams = [optimizer for optimizer in step.optimizers.values() if "betas" in optimizer.param_groups[0]]
    kept = {weight: own for optimizer in adams for weight, own in optimizer.state.items()}
    named = step.model.named_parameters()
    return {name: kept[weight] for name, weight in named if ADAM_STATE <= kept.get(weight, {}).keys()}


def hand_over(source: Step, target: Step) -> bool:
    """Gives `target` the state of `source`, except for learning rates, and to each weight the moments of its name.

    Returns:
        Whether the moments of both are the same now. A step that keeps them elsewhere, or otherwise, keeps its own.
    """
    state = {part: copy.deepcopy(kept) for part, kept in source.state_dict().items() if part != "optimizers"}
    optimizers, given = target.state_dict()["optimizers"], moments(source)
    names, same = {weight: name for name, weight in target.model.named_parameters()}, True
    for player, optimizer in target.optimizers.items():
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        for place, weight in enumerate(weights):
            own, its = optimizer.state.get(weight, {}), given.get(names.get(weight, ""), {})
            if own.keys() >= ADAM_STATE <= its.keys():
                like, count = own["step"], int(its["step"])
                step = torch.full_like(like, count) if isinstance(like, Tensor) else count
                optimizers[player]["state"][place] = {**own, **its, "step": step}  # copied when it is loaded
            else:
                same = same and not own and not its
    target.load_state_dict(state | {"optimizers": optimizers})
    return same


def displaced(before: State, after: State) -> list[str]:
    """The weights that have changed."""
    return [name for name, weight in after.weights.items() if not torch.equal(weight, before.weights[name])]


def rounded(state: State) -> list[str]:
    """The weights and moments, in words, of which many numbers have no more than 16 of float32's 24 binary digits.

    Biases are left out: the gradient of one in front of a norm is rounding alone, which has few digits by itself.
    """
    found = []
    parts = {"weight": state.weights, "Adam's first moment of": state.means, "Adam's second moment of": state.squares}
    for what, by_name in parts.items():
        for name, values in by_name.items():
            if values.dim() < 2:
                continue
            digits = values[values != 0].view(torch.int32) if values.dtype == torch.float32 else values[:0]
            short = ((digits & LAST_DIGITS) == 0).sum() > MOST_ROUNDED * len(digits) if len(digits) else False
            if (len(digits) >= LEAST_NUMBERS and short) or values.dtype in (torch.float16, torch.bfloat16):
                found.append(f"{what} {name}")
    return found


def host(tensor: Tensor) -> Tensor:
    """A copy on the CPU."""
    return tensor.detach().to("cpu", copy=True)
