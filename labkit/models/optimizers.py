"""Learning rates and states of optimisers of any kind, so that a step can resume under other speed-ups."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from labkit.errors import LabkitError, explained


def rates_of(usual: dict[str, float], lr: float | Mapping[str, float] | None) -> dict[str, float]:
    """The learning rate of each player: its usual one if `lr` is None, or `lr`, or the player's own in `lr`.

    Raises:
        LabkitError: a rate is not a positive number, or `lr` does not have one for each player.
    """
    given = lr if isinstance(lr, Mapping) else usual if lr is None else dict.fromkeys(usual, lr)
    if given.keys() != usual.keys():
        raise LabkitError(f"lr={lr}: give one learning rate, or one for each of {', '.join(usual)}, by name.")
    with explained(f"lr={lr}", "A learning rate is a positive number, such as 2e-4."):
        rates = {player: float(given[player]) for player in usual}
        if not all(0 < rate < math.inf for rate in rates.values()):
            raise ValueError("not above 0, or not finite")
    return rates


def set_rates(optimizer: Optimizer, rates: list[float]) -> None:
    """Sets the learning rate of each group. A rate on the device keeps its address, from which a CUDA graph reads."""
    for group, lr in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr


def state_of(optimizer: Optimizer, lr: float) -> dict[str, Any]:
    """The state and the kind of an optimiser, its learning rates as numbers.

    `lr` is the first one: where the optimiser keeps it on a GPU, it may have been rounded.
    """
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group["lr"] = float(group["lr"])
    state["param_groups"][0]["lr"] = lr
    return {**state, "kind": type(optimizer).__name__}


def load_state(player: str, optimizer: Optimizer, state: dict[str, Any], dtype: torch.dtype | None) -> float:
    """Loads a state, which may come from another implementation of the optimiser. Returns the first learning rate.

    Moments of type `dtype`, which the weights had, get that of the weights; with None, all moments do.

    Raises:
        LabkitError: the state belongs to another kind of optimiser.
        ValueError: it belongs to other weights.
    """
    kind, saved_kind = type(optimizer).__name__, state.get("kind", "Adam")  # before labkit 0.2.0 all were Adam
    if kind != saved_kind:
        raise LabkitError(
            f"the optimiser of the {player} is {kind}, and the state is of {saved_kind}. Make the step with the same, "
            "or begin with the weights alone: labkit.init_from."
        )
    groups = [  # options that choose how an optimiser computes, not what, stay as the step has them
        saved | {name: group[name] for name in ("lr", "fused", "foreach", "capturable") if name in group}
        for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=False)
    ]
    others = {k: value for k, value in state["state"].items() if not isinstance(k, int)}  # of no single weight
    optimizer.load_state_dict({**state, "state": others, "param_groups": groups})
    set_rates(optimizer, [saved["lr"] for saved in state["param_groups"]])
    counts_on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
    # Done here, because PyTorch would round what has another type than the weight, and does not load strings or arrays.
    for k, weight in enumerate(weight for group in optimizer.param_groups for weight in group["params"]):
        for name, value in state["state"].get(k, {}).items():
            if isinstance(value, Tensor):  # copied, because the step that was saved may continue with the original ...
                like = weight if value.shape == weight.shape else value  # ... and laid out as fused Adam expects it
                device = "cpu" if name == "step" and not counts_on_device else weight.device  # or each step would wait
                own = value.dtype if name == "step" or value.dtype != (dtype or value.dtype) else weight.dtype
                value = torch.empty_like(like, dtype=own, device=device).copy_(value)
            optimizer.state[weight][name] = copy.copy(value)
    return state["param_groups"][0]["lr"]
