"""Checks of notebook 11: which division of a step is worth its machines, and how often to save."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import mean

from labcourse.check.answers import Mistakes, formula
from labcourse.solutions import best_interval as right_interval
from labcourse.solutions import plan_to_buy as right_plan

Plans = Mapping[str, tuple[Sequence[float], float]]


def _other_plans(random: Random) -> tuple[float, Plans]:
    """Seconds of one process, and divisions among two to five machines, to `plan_to_buy`."""

    def plan() -> tuple[list[float], float]:
        return [random.uniform(1, 6) for _ in range(random.randrange(2, 6))], random.uniform(0, 2)

    return 10.0, {f"plan {i}": plan() for i in range(random.randrange(1, 6))}


@formula(
    right_plan,
    [
        (10.0, {"modules": ([1.0, 12.0, 1.0], 0.1), "halves": ([5.5, 5.5], 0.2)}),
        (10.0, {"modules": ([3.0, 6.0, 3.0], 0.1), "halves": ([5.5, 5.5], 0.2), "quarters": ([2.8] * 4, 0.4)}),
        (10.0, {"modules": ([4.0, 8.0, 3.0], 0.1), "far away": ([5.5, 5.5], 6.0)}),
        (10.0, {"halves": ([5.0, 5.1], 0.1), "eight": ([4.0] * 8, 0.1)}),
        (10.0, {"even": ([4.4, 4.4, 4.4], 0.1), "uneven": ([1.0, 1.0, 6.0], 0.1)}),
        (10.0, {"two": ([5.0, 5.0], 0.0), "slow network": ([3.0, 3.0, 3.0], 4.0), "three": ([4.0, 4.1, 4.0], 0.1)}),
    ],
    _other_plans,
)
def plan_to_buy(one_process: float, plans: Plans) -> Mistakes:
    """Compares ``answer(one_process, plans)`` with `labcourse.plan_to_buy`."""

    def by(step: Callable[[Sequence[float], float], float]) -> str:
        return right_plan(one_process, {name: ([step(*plan)] * len(plan[0]), 0.0) for name, plan in plans.items()})

    steps = {name: max(seconds) + exchange for name, (seconds, exchange) in plans.items()}
    used = {name: one_process / step / len(plans[name][0]) for name, step in steps.items()}
    fastest = min((name for name in steps if steps[name] < one_process), key=steps.__getitem__, default="")
    yield fastest, "That plan is faster, but does it use its machines to a half?"
    yield by(lambda seconds, exchange: max(seconds)), "The network is not free: the exchange takes time in every step."
    yield (
        by(lambda seconds, exchange: sum(seconds) + exchange),
        "They work side by side: do not add their times.",
    )
    yield (
        by(lambda seconds, exchange: mean(seconds) + exchange),
        "The step is not done after the mean: who is last?",
    )
    yield max(used, key=used.__getitem__), "Several plans are worth it: take the fastest step among them."
    yield None, "The seconds of a step first, then which plans are worth it, if any, then the fastest of these."


@formula(
    right_interval,
    [(2.0, 3600.0), (30.0, 86400.0)],
    lambda random: (random.uniform(1, 60), random.uniform(1e3, 1e5)),
)
def best_interval(save_s: float, between_failures_s: float) -> Mistakes:
    """Compares ``answer(save_s, between_failures_s)`` with `labcourse.best_interval`."""
    yield math.sqrt(save_s * between_failures_s), "A failure costs half an interval on average: where is that half?"
    yield 2 * save_s * between_failures_s, "That is its square: the derivative is 0 at the root of it."
    yield between_failures_s / 2, "The time that a checkpoint takes must count: so seldom, a failure costs too much."
    yield math.sqrt(2 * save_s / between_failures_s), "That is the share of time lost, not the interval."
    yield None, "Set the derivative of save / interval + interval / (2 * between) to zero."
