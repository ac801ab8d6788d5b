"""Work on many machines: which division of a step is worth its machines, and how often to save."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.models.deviation import DeviationGAN
from labkit.parallel.apart import Apart
from labkit.simulate import step_operators


def module_flops(model: DeviationGAN, size: int = 256) -> dict[str, int]:
    """FLOPs of a step of "one process", and of each module's process if the modules are trained apart.

    Args:
        model: of stage "joint".
        size: height and width of the pictures, in pixels.
    """
    kinds: dict[str, list[Any]] = {"one process": []}
    for module in model.players():
        alone = {"module": module, "exchange_every": 1, "exchange": lambda step: None}
        kinds[module] = [type("Alone", (Apart,), alone)]
    return {
        name: sum(operator.flops for operator in step_operators(model, *kind, size=size))
        for name, kind in kinds.items()
    }


def plan_to_buy(one_process: float, plans: Mapping[str, tuple[Sequence[float], float]]) -> str:
    """The division of a step with the fastest step, of those that use their machines to at least a half.

    The slowest process decides how long a step takes, as in Amdahl's law (Amdahl 1967).

    Args:
        one_process: seconds of a step in one process.
        plans: by name, the seconds of each process, and those that the exchange adds to a step.

    Returns:
        A plan's name, or "one process" if none is at least half as many times faster as it has machines.
    """
    steps = {name: max(processes) + exchange for name, (processes, exchange) in plans.items()}
    worth = {name: step for name, step in steps.items() if one_process / step >= len(plans[name][0]) / 2}
    return min(worth, key=lambda name: worth[name], default="one process")


def best_interval(save_s: float, between_failures_s: float) -> float:
    """The seconds between two checkpoints that lose the least time, in seconds.

    Of the time a share save / interval goes into saving, and a failure costs half an interval of work on average.
    Source: Young 1974, "A first order approximation to the optimum checkpoint interval".
    """
    return math.sqrt(2 * save_s * between_failures_s)
