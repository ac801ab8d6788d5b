"""Optimisers of any kind: their learning rates, and states that another one of the same kind goes on from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from labkit.errors import LabkitError

# Options that say how, and not what, an optimiser computes: each step keeps its own.
HOW = ("fused", "foreach", "capturable")


def rates_of(optimizer: Optimizer) -> list[float]:
    """The learning rate of each group of weights."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def set_rates(optimizer: Optimizer, rates: list[float]) -> None:
    """Sets the learning rates; one that lies on the device stays at its address, where a CUDA graph reads it."""
    for group, lr in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr


def state_of(optimizer: Optimizer, lr: float) -> dict[str, Any]:
    """The state, with the optimiser's kind, and with learning rates as numbers, wherever it keeps them.

    `lr` is that of the first group: on a GPU the optimiser may have rounded it.
    """
    state = optimizer.state_dict()
    for group, rate in zip(state["param_groups"], [lr, *rates_of(optimizer)[1:]], strict=True):
        group["lr"] = rate
    return {**state, "kind": type(optimizer).__name__}


def load_states(optimizers: dict[str, Optimizer], states: dict[str, Any]) -> dict[str, float]:
    """Loads the state of each player's optimiser; returns the learning rates.

    Raises:
        LabkitError: a state is of another kind of optimiser; none is loaded then.
    """
    for player, optimizer in optimizers.items():
        _check_kind(player, optimizer, states[player])
    for player, optimizer in optimizers.items():
        _load(optimizer, states[player])
        set_rates(optimizer, [group["lr"] for group in states[player]["param_groups"]])
    return {player: states[player]["param_groups"][0]["lr"] for player in optimizers}


def _check_kind(player: str, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Raises `LabkitError` if a state is of another kind of optimiser, or of other groups of weights."""
    kind, saved = type(optimizer).__name__, state.get("kind", "Adam")  # before labkit 0.2.0 there was no other
    sizes = [[len(group["params"]) for group in groups] for groups in (state["param_groups"], optimizer.param_groups)]
    if kind != saved or sizes[0] != sizes[1]:
        weights = [" and ".join(map(str, numbers)) for numbers in sizes]
        raise LabkitError(
            f"the optimiser of the {player} is {kind} for {weights[1]} weights, and the state is of {saved} for "
            f"{weights[0]}. Make the step with the same optimisers, or start a new run from the weights alone: "
            "labkit.init_from."
        )


def _load(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Loads counts of steps and moments, but not how, nor on which device, another optimiser computed."""
    groups = []
    for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True):
        kept = {name: value for name, value in saved.items() if name not in HOW}
        groups.append(kept | {name: own[name] for name in ("lr", *HOW) if name in own})
    optimizer.load_state_dict({**state, "param_groups": groups})
    on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
    for weight, kept in optimizer.state.items():
        for name, value in kept.items():
            if not isinstance(value, Tensor):
                continue
            if name == "step":  # on a GPU the host would wait for it in every step; a copy, or both steps would count
                kept[name] = value.clone() if on_device else value.cpu().clone()
            elif value.shape == weight.shape:  # a moment: fused Adam assumes that it lies in memory as the weight does
                kept[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)
