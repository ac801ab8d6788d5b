"""Learning rates over a run: functions from the number of steps done to the factor on the learning rate."""

from __future__ import annotations

from collections.abc import Callable

from labkit.errors import LabkitError


def linear_schedule(constant: int, decay: int, epoch: int = 1) -> Callable[[int], float]:
    """The reference's learning-rate schedule: 1 for `constant` steps, then down to nearly 0 over `decay` steps.

    The factor changes once every `epoch` steps; the reference's own run is
    ``linear_schedule(100 * n, 100 * n, epoch=n)`` with n the steps of an epoch. After all of them it is 0.

    Returns:
        a function from the number of steps done to the factor on the learning rate.

    Raises:
        LabkitError: `constant` or `decay` is negative, or `epoch` is below 1.
    """
    for name, steps, least in (("constant", constant, 0), ("decay", decay, 0), ("epoch", epoch, 1)):
        if steps < least:
            raise LabkitError(f"linear_schedule: {name}={steps} steps; it must be at least {least}.")
    return lambda done: max(0.0, 1 - max(0, done // epoch + 1 - constant // epoch) / (decay // epoch + 1))
