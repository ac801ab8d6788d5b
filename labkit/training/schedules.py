"""Learning rates over a run: functions from the number of steps done to the factor on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from labkit.errors import LabkitError


def linear_schedule(constant: int, decay: int, epoch: int = 1) -> Callable[[int], float]:
    """The reference's learning-rate schedule: 1 for `constant` steps, then down to nearly 0 over `decay` steps.

    The factor changes once every `epoch` steps. The reference's own run is
    ``linear_schedule(100 * n, 100 * n, epoch=n)`` with n the steps of an epoch. After all of them it is 0.

    Returns:
        a function from the number of steps done to the factor on the learning rate.

    Raises:
        LabkitError: `constant` or `decay` is negative.

    Example:
        >>> factor = labkit.linear_schedule(100, 99)
        >>> factor(0), factor(149), factor(199)
        (1.0, 0.5, 0.0)
    """
    if min(constant, decay) < 0:
        raise LabkitError(f"linear_schedule: constant={constant}, decay={decay} steps; neither can be negative.")
    return lambda done: max(0.0, 1 - max(0, done // epoch + 1 - constant // epoch) / (decay // epoch + 1))


def step_schedule(every: int) -> Callable[[int], float]:
    """The reference's "step" schedule: a tenth of the learning rate after each `every` steps.

    The reference's own run is ``step_schedule(50 * n)`` with n the steps of an epoch.

    Returns:
        a function from the number of steps done to the factor on the learning rate.
    """
    return lambda done: 0.1 ** (done // every)


def cosine_schedule(steps: int, epoch: int = 1) -> Callable[[int], float]:
    """The reference's "cosine" schedule: from 1 down to 0 over `steps` steps, along half a cosine.

    The factor changes once every `epoch` steps. After all of them it is 0, where the reference's rises again.
    Source: Loshchilov and Hutter 2017, equation 5, without restarts.

    Returns:
        a function from the number of steps done to the factor on the learning rate.
    """
    return lambda done: (1 + math.cos(math.pi * min(1, done // epoch / (steps // epoch)))) / 2
