"""Checks of notebook 11: the bubble of a pipeline, machines that are worth it, going on after a loss, when to save."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from labcourse.check.answers import drawn, exercise, expect, guarded, require
from labcourse.check.formula import Mistakes, formula
from labcourse.solutions import best_interval as right_interval
from labcourse.solutions import plan_to_buy as right_plan

Plans = Mapping[str, tuple[Sequence[float], float]]
Pipelines = Mapping[str, tuple[Sequence[float], int]]


def _right_pipeline(plans: Pipelines, extra_s: float) -> dict[str, Any]:
    steps, bubbles = {}, {}
    for name, (stages, microbatches) in plans.items():
        each = [seconds / microbatches + extra_s for seconds in stages]
        steps[name] = sum(each) + (microbatches - 1) * max(each)
        bubbles[name] = 1 - microbatches * mean(each) / steps[name]
    return {"fastest": min(steps, key=steps.__getitem__), "bubbles": bubbles}


def _other_pipelines(random: Random) -> tuple[Pipelines, float]:
    """Plans of one network with different numbers of stages, as even as they may be, and the extra seconds."""
    step, plans = random.uniform(2, 20), {}
    for stages in random.sample((2, 3, 4, 6), random.choice((2, 2, 3))):
        parts = [random.choice((1, random.uniform(1, 2))) for _ in range(stages)]
        even = [step * part / sum(parts) for part in parts]
        plans[f"{stages} stages"] = even, random.choice((1, 2, 4, 8, 16))
    return plans, step * random.choice((0.001, 0.02, 0.1))


@formula(
    _right_pipeline,
    [
        ({"two": ([5.0, 5.0], 4), "four": ([2.5] * 4, 4)}, 0.0),
        ({"even": ([4.0] * 3, 6), "uneven": ([1.0, 9.0, 1.0], 6)}, 0.01),
        ({"few": ([4.0, 4.0], 2), "many": ([4.0, 4.0], 16)}, 0.3),
        ({"two": ([4.0, 4.0], 1), "one": ([8.0], 1)}, 0.1),
    ],
    _other_pipelines,
)
def better_pipeline(plans: Pipelines, extra_s: float) -> Mistakes:
    """Compares ``answer(plans, extra_s)`` with the fastest of the pipelines, and the bubble of each."""
    right = _right_pipeline(plans, extra_s)
    bubbles = right["bubbles"]

    def of(bubble: Callable[[Sequence[float], int], float]) -> dict[str, dict[str, float]]:
        each = {name: ([one / m + extra_s for one in stages], m) for name, (stages, m) in plans.items()}
        return {"bubbles": {name: bubble(*stages) for name, stages in each.items()}}

    least = min(bubbles, key=bubbles.__getitem__)
    yield right | {"fastest": least}, "The plan with the least bubble need not have the fastest step: compare seconds."
    yield {"bubbles": {name: 1 - bubble for name, bubble in bubbles.items()}}, "That is the share in which they work."
    yield {"bubbles": _right_pipeline(plans, 0.0)["bubbles"]}, "Each microbatch takes extra_s more, in every stage."
    yield of(lambda each, m: (len(each) - 1) / (m + len(each) - 1)), "That is right only where all stages are equal."
    yield of(lambda each, m: 1 - mean(each) / max(each)), "The last stage has nothing to do before the first result."
    plain = of(lambda each, m: 1 - m * (mean(each) - extra_s) / (sum(each) + (m - 1) * max(each)))
    yield plain, "The extra seconds are work, too: in them a rank is no bubble."
    yield of(lambda each, m: 1 - 1 / len(each)), "Stages work at the same time, on different microbatches."
    yield None, "The first microbatch takes all stages; then one more is done whenever the slowest stage has done one."


def _other_plans(random: Random) -> tuple[float, Plans]:
    """Seconds of one process, and plans: those that mistakes choose, and mostly one that is just worth it."""
    step, n = random.randrange(16, 80) / 4, random.choice([3, 5])
    much_less = n / (4 * n + 1) * step
    plans = [
        ([much_less] * (2 * n + 1), much_less),  # (n + 1 / 4) times as fast
        ([0.1 * step, 2.5 * step, 0.1 * step], 0.0),
        ([0.1 * step] * 3, 3 * step),
        ([0.3 * step] * 2, 0.9 * step),
        ([*(random.uniform(0.95, 1) * (step - 0.5) for _ in range(n - 2)), step - 0.5, 1.0], 0.5),
        ([0.5 * step] * 2, 0.25 * step),
    ][: random.choice([3, 5, 5, 6])]
    return n * step / 2, {f"plan {i}": plan for i, plan in enumerate(random.sample(plans, len(plans)))}


@formula(
    right_plan,
    [
        (10.0, {"modules": ([1.0, 12.0, 1.0], 0.1), "near": ([5.5, 5.0], 0.1), "halves": ([5.2, 5.2], 0.5)}),
        (10.0, {"modules": ([4.0, 8.0, 3.0], 0.1), "far away": ([5.5, 5.5], 6.0)}),
        (10.0, {"three": ([3.3] * 3, 0), "eight": ([2.7] * 8, 0), "four": ([4.1] * 4, 0), "two": ([3.5] * 2, 0)}),
        (12.0, {"exactly": ([7.5] * 3, 0.5)}),
    ],
    _other_plans,
)
def plan_to_buy(one_process: float, plans: Plans) -> Mistakes:
    """Compares ``answer(one_process, plans)`` with `labcourse.plan_to_buy`."""

    def by(step: Callable[[Sequence[float], float], float]) -> str:
        return right_plan(one_process, {name: ([step(*plan)] * len(plan[0]), 0.0) for name, plan in plans.items()})

    steps = {name: max(seconds) + exchange for name, (seconds, exchange) in plans.items()}
    used = {name: one_process / step / len(plans[name][0]) for name, step in steps.items()}
    more = min((name for name in steps if used[name] > 0.5), key=steps.__getitem__, default="one process")
    yield more, "Does exactly a half count? A plan that is n / 2 times as fast is worth it."
    fastest = min(steps, key=steps.__getitem__)
    if used[fastest] < 0.5:
        yield "one process", "Is only the fastest plan tested? Another one is worth its machines."
    yield fastest, f"That plan has {len(plans[fastest][0])} machines: is it at least half as many times as fast?"
    best_used = max((name for name in steps if used[name] >= 0.5), key=used.__getitem__, default="one process")
    yield best_used, "Are several plans worth it? Take the fastest step among these."
    yield by(lambda seconds, exchange: max(seconds)), "Is the network free? The exchange takes time in every step."
    yield by(lambda seconds, exchange: sum(seconds) + exchange), "Do times of processes side by side add up?"
    yield by(lambda seconds, exchange: mean(seconds) + exchange), "Which process ends a step? Not the mean."
    yield None, "The seconds of a step first, then which plans are worth it, if any, then the fastest of these."


@formula(
    right_interval,
    [(30.0, 86400.0), (3600.0, 2_592_000.0), (100.0, 10.0)],
    lambda random: (10 ** random.uniform(-1, 4), 10 ** random.uniform(0, 7)),
)
def best_interval(save_s: float, between_failures_s: float) -> Mistakes:
    """Compares ``answer(save_s, between_failures_s)`` with `labcourse.best_interval`."""
    yield math.sqrt(save_s * between_failures_s), "A failure costs half an interval on average: where is that half?"
    yield 2 * save_s * between_failures_s, "That is its square: the derivative is 0 at the root of it."
    yield between_failures_s / 2, "The time that a checkpoint takes must count: so seldom, a failure costs too much."
    yield math.sqrt(2 * save_s / between_failures_s), "That is the share of time lost, not the interval."
    right = math.sqrt(2 * save_s * between_failures_s)
    yield right / 60, "Those are minutes: give seconds."
    yield (lambda got, _: abs(got - right) < 1), "That is rounded: leave the seconds as they are."
    yield None, "Set the derivative of save / interval + interval / (2 * between) to zero."


MOST_CALLS = 1000  # of a training's steps and checkpoints


def _calls(
    train: Callable[..., Tensor], steps: int, every: int, lost: list[int], begun: int, start: Tensor
) -> tuple[Tensor, list[tuple[str, list[float]]]]:
    """The state that ``train(steps, every, step, save, load)`` returns, and its calls of `step` and `save`.

    A call has the state's numbers beside it. The last of them is the machine's, which changes with each loss.

    Args:
        lost: the calls, counted from 0, in which a machine is lost.
        begun: the steps of the first checkpoint, and `start` its state.
    """
    kept, calls, machines = (start, begun), [], itertools.count()
    machine = next(machines)

    def call(words: str, state: Tensor) -> None:
        nonlocal machine
        calls.append((words, state.tolist()))
        if len(calls) - 1 in lost:
            machine = next(machines)
            raise ConnectionError("the machine is lost")
        require(len(calls) <= MOST_CALLS, "it does not come to an end: when are all steps done?")

    def step(state: Tensor, k: int) -> Tensor:
        before = state.clone()
        state[:-1].mul_(1.5).add_(k)
        call(f"step(state, {k})", before)
        return state

    def save(state: Tensor, done: int) -> None:
        nonlocal kept
        call(f"save(state, {done})", state)
        kept = state.clone(), done

    def load() -> tuple[Tensor, int]:
        return torch.cat([kept[0][:-1], torch.tensor([float(machine)])]), kept[1]

    return train(steps, every, step, save, load), calls


@exercise()
def train_through(answer: Callable) -> None:
    """Checks that ``answer(steps, every, step, save, load)`` makes the right calls, after each loss as well."""
    every = drawn(3, lambda random: random.choice([2, 4, 5]))
    early, late, rest = drawn(
        [1, 2, 1], lambda random: [*random.choices(range(every), k=2), random.randrange(1, every)]
    )
    # Lost are a step, the save after it, the next step, a step of the second block, its save, and the step after that.
    lost = [*itertools.accumulate([early, every + 1, 1, every + 2 + late, every + 1, every + 2])]
    for begun, steps in ((0, 2 * every + rest), (every, 3 * every), (every, every), (1, 2 * every)):
        given = steps, every, lost, begun, torch.rand(4)
        in_try = "If a machine was lost: does `try` hold each call of step and save?"
        with guarded(answer, if_it_fails=in_try):
            state, calls = _calls(answer, *given)
        right, right_calls = _calls(_trained_through, *given)
        end, before = ("the end", None), "at first"
        for number, (call, expected) in enumerate(itertools.zip_longest(calls, right_calls, fillvalue=end)):
            got = "with another state" if call[0] == expected[0] else f"and not {call[0]}"
            told = f"steps = {steps}, every = {every}: {before} {expected[0]} is right, {got}."
            hint = "Begin with load(): the first checkpoint may have steps behind it." if before == "at first" else ""
            hint = hint or "After a loss, only `load` has a state that is right, and its number of steps."
            require(call == expected, f"{told} {hint}")
            before = f"after {call[0]}{', in which a machine is lost,' if number in lost else ''}"
        expect(state, right, [], f"the state that comes back is not that of {steps} steps.")


def _trained_through(steps: int, every: int, step: Callable, save: Callable, load: Callable) -> Tensor:
    state, done = load()
    try:
        for k in range(done, steps):
            state = step(state, k)
            if (k + 1) % every == 0:
                save(state, k + 1)
    except ConnectionError:
        return _trained_through(steps, every, step, save, load)
    return state


def _right_share(interval: float, save_s: float, gaps: Sequence[float]) -> float:
    return 1 - interval * sum(gap // (interval + save_s) for gap in gaps) / sum(gaps)


def _other_gaps(random: Random) -> tuple[float, float, list[float]]:
    """Among the gaps are one shorter than a round, one of whole rounds, and one that ends while a round is saved."""
    interval, save_s = random.randrange(8, 40) / 4, random.randrange(4, 40) / 4
    parts = (0, 0.5), (1, 0), (random.randrange(1, 9), 0.9), (random.randrange(20, 90), 0.2)
    gaps = [rounds * (interval + save_s) + part * save_s + (interval if part > 0.5 else 0) for rounds, part in parts]
    return interval, save_s, random.sample(gaps, len(gaps))


@formula(_right_share, [(300.0, 60.0, [1000.0, 4300.0, 200.0, 360.0])], _other_gaps)
def share_lost(interval: float, save_s: float, gaps: Sequence[float]) -> Mistakes:
    """Compares ``answer(interval, save_s, gaps)`` with the share of the time whose work no checkpoint keeps."""
    right, whole = _right_share(interval, save_s, gaps), interval + save_s
    yield 1 - right, "That is the share that is kept."
    yield (1 - right) * sum(gaps), "Those are seconds, and of kept work: which share of all gaps together is lost?"
    yield 1 - interval / whole, "A failure costs what was begun and not saved: only whole rounds count."
    yield _right_share(whole, 0, gaps), "The time of saving is no work: a round keeps `interval` seconds."
    yield _right_share(interval, 0, gaps), "From one checkpoint to the next it takes interval + save_s seconds."
    yield mean(_right_share(interval, save_s, [gap]) for gap in gaps), "Long gaps weigh more: divide the sums."
    yield None, "In a gap there are gap // (interval + save_s) whole rounds: work that is not saved yet is lost."
