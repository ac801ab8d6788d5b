"""Checks of notebook 11: which division of a step is worth its machines, how to go on after a loss, when to save."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import mean

import torch

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, expect, formula, require
from labcourse.solutions import best_interval as right_interval
from labcourse.solutions import plan_to_buy as right_plan

Plans = Mapping[str, tuple[Sequence[float], float]]


def _other_plans(random: Random) -> tuple[float, Plans]:
    """Seconds of one process, and divisions among two to five machines, to `plan_to_buy`."""
    one_process = random.uniform(30, 90)

    def plan() -> tuple[list[float], float]:
        processes = [one_process * random.uniform(0.1, 0.6) for _ in range(random.randrange(2, 6))]
        return processes, one_process * random.uniform(0, 0.2)

    return one_process, {f"plan {i}": plan() for i in range(random.randrange(1, 6))}


@formula(
    right_plan,
    [
        (10.0, {"modules": ([1.0, 12.0, 1.0], 0.1), "halves": ([5.5, 5.5], 0.2)}),
        (10.0, {"modules": ([3.0, 6.0, 3.0], 0.1), "halves": ([5.5, 5.5], 0.2), "quarters": ([2.8] * 4, 0.4)}),
        (10.0, {"modules": ([4.0, 8.0, 3.0], 0.1), "far away": ([5.5, 5.5], 6.0)}),
        (10.0, {"halves": ([5.0, 5.1], 0.1), "eight": ([4.0] * 8, 0.1)}),
        (10.0, {"exactly": ([5.0] * 4, 0.0), "far": ([9.0] * 2, 1.0)}),
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
    more = min((name for name in steps if used[name] > 0.5), key=steps.__getitem__, default="one process")
    yield more, "At least half counts: a plan that is exactly n / 2 times as fast is worth it."
    if fastest and used[fastest] < 0.5:
        yield "one process", "The fastest plan is not worth its machines, but another one is: test them all first."
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


@exercise()
def train_through(answer: Callable) -> None:
    """Checks that ``answer(steps, every, step, save, load)`` comes to the state of a training that lost no machine."""
    steps, every = drawn((9, 3), lambda random: (random.randrange(8, 15), random.randrange(2, 5)))
    lost = drawn([1, 6, 10], lambda random: sorted(random.sample(range(2 * every + 4), 4)))
    start, saving = torch.rand(3), "a machine can be lost while it saves, too: what does `try` hold?"
    state, calls = ask(answer, steps, every, lost, start, through=observe.machines_lost, if_it_fails=saving)
    for (call, at), (after, then) in itertools.pairwise([*calls, ("step", steps)]):
        for mistake, message in (
            (call == "lost" and after != "load", "a loss leaves a damaged state: go on from the last checkpoint."),
            (call == "load" and then != at, f"the checkpoint has {at} steps, so step {at} is next, not {then}."),
            (call == "step" and after == "save" and then != at + 1, f"after step {at}, {at + 1} are done, not {then}."),
            (after == "save" and then % every, f"{then} is no multiple of every = {every}: it saves too often."),
            (call == after == "step" and (at + 1) % every == 0, f"there is no checkpoint of {at + 1} steps."),
        ):
            require(not mistake, message)
    right, _ = observe.machines_lost(_without_losses, steps, every, [], start)
    expect(state, right, [], f"the state that comes back is not that of {steps} steps.")


def _without_losses(steps: int, every: int, step: Callable, save: Callable, load: Callable) -> torch.Tensor:
    return functools.reduce(step, range(steps), load()[0])


def _right_share(interval: float, save_s: float, gaps: Sequence[float]) -> float:
    return 1 - interval * sum(gap // (interval + save_s) for gap in gaps) / sum(gaps)


@formula(
    _right_share,
    [(300.0, 60.0, [1000.0, 4000.0, 200.0]), (100.0, 10.0, [5000.0])],
    lambda random: (random.uniform(1, 9), random.uniform(1, 3), [random.uniform(1, 99) for _ in range(9)]),
)
def share_lost(interval: float, save_s: float, gaps: Sequence[float]) -> Mistakes:
    """Compares ``answer(interval, save_s, gaps)`` with the share of the time whose work no checkpoint keeps."""
    right, whole = _right_share(interval, save_s, gaps), interval + save_s
    yield 1 - right, "That is the share that is kept."
    yield (1 - right) * sum(gaps), "Those are seconds, and of kept work: which share of all gaps together is lost?"
    yield 1 - interval / whole, "A failure costs what was begun and not saved: only whole rounds count."
    yield _right_share(whole, 0, gaps), "The time of saving is no work: a round keeps `interval` seconds."
    yield _right_share(interval, 0, gaps), "From one checkpoint to the next it takes interval + save_s seconds."
    yield mean(_right_share(interval, save_s, [gap]) for gap in gaps), "Long gaps weigh more: divide the sums."
    yield None, "In a gap there are gap // (interval + save_s) whole rounds."
