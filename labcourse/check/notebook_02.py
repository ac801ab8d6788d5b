"""Checks of notebook 02: timing, Amdahl's law."""

from __future__ import annotations

import math
from collections.abc import Callable

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, expect, formula, require, require_kind
from labkit.measure.roofline import amdahl as right_amdahl
from labkit.measure.timing import alternate as right_alternate


@exercise(right_alternate)
def alternate(answer: Callable) -> None:
    """Compares ``answer(steps, rounds, warmup, synchronise, clock)`` with `labkit.measure.timing.alternate`."""
    rounds, warm = drawn((3, 2), lambda random: (random.randrange(2, 7), random.randrange(2, 5)))
    slower = drawn(1.0, lambda random: random.uniform(0.8, 1.1))

    got, calls = ask(answer, rounds, warm, slower, through=observe.turns)
    require_kind(got, "a dict with the keys ['a', 'b']")
    for seconds in got.values():
        listed = isinstance(seconds, list) and len(seconds) > 0
        require(listed, "a list of seconds is expected for each step: append to it.")
    order = [call for call in calls if call != "clock"]
    times, number = got["a"] + got["b"], warm + rounds
    shared = len(got["a"]) > rounds and got["a"] == got["b"]
    for holds, message in (
        ("clock" in calls, "your function never reads the clock it is given: call the argument `clock`."),
        (len(order) > 0, "no step has run: call it, step() with parentheses."),
        (order == ["a", "b"] * number, f"the order is {' '.join(order)}: take the steps in turn, a b, {number} times."),
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
        mine, _ = ask(answer, rounds, warmup, slower, through=observe.turns)
        its, _ = observe.turns(right_alternate, rounds, warmup, slower)
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
