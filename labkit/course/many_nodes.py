"""Work on many machines: bounds of modules apart and of waves of trials, old weights, outer steps, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def apart_bound(one_process: float, modules: Mapping[str, float]) -> float:
    """How many times faster a step gets at most if each module has a process of its own.

    The slowest module decides, as in Amdahl's law: Amdahl 1967, "Validity of the single processor approach to achieving
    large scale computing capabilities".

    Args:
        one_process: seconds of a step that trains all modules.
        modules: seconds of a step of each module's process, by name.
    """
    return one_process / max(modules.values())


def mean_age(exchange_every: int) -> float:
    """How many steps old the weights of the other modules are on average, if they are exchanged every so many steps."""
    return (exchange_every - 1) / 2


def outer_step(
    before: float, mean: float, velocity: float, lr: float = 0.7, momentum: float = 0.9
) -> tuple[float, float]:
    """A weight, and its velocity, after an outer step: SGD with Nesterov momentum from `before` towards `mean`.

    As torch.optim.SGD does it. Source: Douillard et al. 2023, "DiLoCo", algorithm 1.

    Args:
        before: the weight after the last exchange.
        mean: of the ranks' weights now.
        velocity: from the last outer step; 0 before the first.
        lr, momentum: as the paper found best.
    """
    gradient = before - mean
    velocity = momentum * velocity + gradient
    return before - lr * (gradient + momentum * velocity), velocity


def waves_bound(trials: int, workers: int) -> float:
    """How many times faster `workers` train so many equally long trials than one worker does, at most."""
    return trials / math.ceil(trials / workers)


def best_interval(save_s: float, between_failures_s: float) -> float:
    """The seconds between two checkpoints that lose the least time, in seconds.

    Of the time a share save / interval goes into saving, and a failure costs half an interval of work on average.
    Source: Young 1974, "A first order approximation to the optimum checkpoint interval".
    """
    return math.sqrt(2 * save_s * between_failures_s)
