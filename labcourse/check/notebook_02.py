"""Checks of notebook 02: timing, a profile, Amdahl's law."""

from __future__ import annotations

import math
from collections.abc import Callable

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, expect, formula, require, require_kind
from labcourse.stand_ins import FakeGPU
from labkit.measure.roofline import amdahl as right_amdahl
from labkit.measure.timing import alternate as right_alternate

LAUNCH = FakeGPU().launch_cost


def _right_share(kernel_s: float, kernels: int) -> float:
    longer, shorter = max(kernel_s, LAUNCH), min(kernel_s, LAUNCH)
    return kernels * kernel_s / (kernels * longer + shorter)


@formula(
    _right_share,
    [(100e-6, 50), (2e-6, 1000)],
    lambda random: (random.choice((1e-6, 1e-4)) * random.uniform(1, 9), random.randrange(9, 99)),
    through=observe.busy_of_work,
)
def busy_share(kernel_s: float, kernels: int) -> Mistakes:
    """Compares ``answer(gpu, kernel_s, kernels)`` with the share of the time for which a busy `FakeGPU` works."""
    right = _right_share(kernel_s, kernels)
    yield kernel_s / LAUNCH, "That is the time of the launches alone: synchronise before you read the clock again."
    yield lambda got, _: abs(got + right - 1) < 1e-6, "That is the share for which it is idle."
    yield right / kernels, "That is the work of one kernel: there are `kernels` of them."
    yield kernel_s / (kernel_s + LAUNCH), "Synchronise after the last launch only: it makes the host wait each time."
    yield (
        lambda got, _: got < right,
        "Work from before counts: synchronise before you read the clock for the first time.",
    )
    yield None, "Divide the work of all kernels by the time from the first launch to the last kernel's end."


@exercise()
def recorded(answer: Callable) -> None:
    """Checks which calls of a step the profiler has recorded that ``answer(step, warmup, steps)`` returns."""
    warmup, steps = drawn((2, 3), lambda random: (random.randrange(1, 4), random.randrange(2, 5)))
    names, calls = ask(answer, warmup, steps, through=observe.profiled_calls)
    kept = [k for k in range(calls) if f"call {k}" in names]
    for mistake, message in (
        (calls != warmup + steps, f"the step was called {calls} times, not {warmup} + {steps}."),
        (not kept, "no call was recorded: without profiler.step() in each turn the warm-up never ends."),
        (0 in kept, "the warm-up was recorded, too: give the profiler a schedule, with its length."),
        (len(kept) < steps, f"only {len(kept)} calls were recorded: `active` says how many."),
        (
            min(kept, default=0) < warmup,
            "a call of the warm-up was recorded: end a step after the call, not before it.",
        ),
        (names.count("my step") != steps, 'put each call into a range: with record_function("my step"): ...'),
    ):
        require(not mistake, message)


@exercise(right_alternate)
def alternate(answer: Callable) -> None:
    """Compares ``answer(steps, rounds, warmup, synchronise, clock)`` with `labkit.measure.timing.alternate`."""
    rounds, warm = drawn((3, 2), lambda random: (random.randrange(2, 7), random.randrange(2, 5)))
    slower = drawn(1.0, lambda random: random.uniform(0.8, 1.1))
    names = drawn(["a", "b"], lambda random: random.sample(["batched", "bf16", "graph", "plain"], 2))

    got, calls = ask(answer, names, rounds, warm, slower, through=observe.turns)
    require_kind(got, f"a dict with the keys {sorted(names)}")
    for seconds in got.values():
        listed = isinstance(seconds, list) and len(seconds) > 0
        require(listed, "a list of seconds is expected for each step: append to it.")
    order = [call for call in calls if call != "clock"]
    first, second = (got[name] for name in names)
    times, number = first + second, warm + rounds
    shared = len(first) > rounds and first == second
    for holds, message in (
        ("clock" in calls, "your function never reads the clock it is given: call the argument `clock`."),
        (len(order) > 0, "no step has run: call it, step() with parentheses."),
        (
            [sorted(pair) for pair in zip(order[::2], order[1::2], strict=False)] == [sorted(names)] * number,
            f"the order is {' '.join(order)}: take the steps in turn, {' '.join(names)}, {number} times.",
        ),
        (not shared, "the steps share one list: make a new one for each, {name: [] for name in steps}."),
        (min(times) >= 0, "there are negative times: take the clock after the step minus the clock before it."),
        (max(times) < 100, "the times are in milliseconds or less: leave them in seconds, as `clock` has them."),
        (max(times) < 4.0, "the first, slow rounds count: leave the warm-up out."),
        (len(times) == 2 * rounds, f"{len(times)} times came back, not 2 x {rounds}: keep those with turn >= warmup."),
        (max(times) > 0.5, "only the launch is measured: synchronise after the step, and then read `clock()`."),
        (max(times) < 2.5, "a time also holds those of the steps before it: read the clock before each step."),
    ):
        require(holds, message)
    before = "work from before is measured as well: synchronise before reading the clock the first time."
    for warmup in (warm, 0):
        mine, _ = ask(answer, names, rounds, warmup, slower, through=observe.turns)
        its, _ = observe.turns(right_alternate, names, rounds, warmup, slower)
        expect({name: tuple(mine[name]) for name in its}, {name: tuple(its[name]) for name in its}, [], before)


@formula(
    right_amdahl,
    [(0.6, 4.0), (0.9, math.inf)],
    lambda random: (random.uniform(0.1, 0.9), random.choice((random.uniform(2, 9), math.inf))),
)
def amdahl(share: float, factor: float) -> Mistakes:
    """Compares ``answer(share, factor)`` with `labkit.measure.roofline.amdahl`."""
    left = 1 - share + share / factor
    yield factor, "That is the part's own factor: the rest of the step takes as long as before."
    yield left, "That is the time that is left: how many times faster is one over it."
    yield 1 - left, "That is the share of the time that is saved: how many times faster is one over the time left."
    yield 1 / (1 - share), "That is the bound for an infinite factor: the part still takes share / factor."
    yield 1 / (1 - share) + share / factor, "One over the whole sum: put the time that is left in parentheses."
    yield 1 / (share + (1 - share) / factor), "The part that `share` names gets faster, and the rest does not."
    yield None, "Of the time 1, 1 - share stays: divide `share` by `factor` for the rest, also where that gives 0."
