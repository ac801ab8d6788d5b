"""Checks of notebook 02: timing, time by range, Amdahl's law."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from labkit.course.check.answers import expect, passed, require, require_kind
from labkit.course.fake_gpu import FakeGPU
from labkit.measure.roofline import amdahl as right_amdahl
from labkit.measure.timing import alternate as right_alternate


def alternate(answer: Callable) -> None:
    """Compares ``answer(steps, rounds, warmup, synchronise, clock)`` with `labkit.measure.timing.alternate`."""

    def measured(alternate: Callable, warmup: int) -> tuple[dict[str, list[float]], list[str]]:
        """The times on a fake GPU that is busy at first and slow for two rounds, and the order of the steps."""
        gpu, order = FakeGPU(), []
        gpu.launch(7.0)

        def step(name: str, seconds: float) -> None:
            order.append(name)
            gpu.launch(seconds + (4.0 if order.count(name) <= 2 else 0.0))

        steps = {"a": lambda: step("a", 1.0), "b": lambda: step("b", 2.0)}
        return alternate(steps, rounds=3, warmup=warmup, synchronise=gpu.synchronise, clock=gpu.clock), order

    right, right_order = measured(right_alternate, warmup=2)
    got, order = measured(answer, warmup=2)
    require_kind(got, "a dict with the keys ['a', 'b']")
    for values in got.values():
        require(
            isinstance(values, list) and len(values) > 0, "a list of seconds is expected for each step: append to it."
        )
    times = got["a"] + got["b"]
    for holds, message in (
        (order.count("a") == order.count("b") == 5, "each step has to run warmup + rounds times: here 2 + 3."),
        (
            order == right_order,
            f"the order is {' '.join(order)}: take the steps in turn, {' '.join(right_order[:4])} ...",
        ),
        (max(times) < 4.0, "the first, slow rounds count: leave the warm-up out."),
        (len(times) == 6, f"{len(times)} times came back: one is expected for each of 3 rounds, of 2 steps."),
        (max(times) > 0.5, "only the launch is measured: synchronise after the step, and then read `clock()`."),
    ):
        require(holds, message)
    before = "work from before is measured as well: synchronise before reading the clock the first time."
    cold, right_cold = (measured(one, warmup=0)[0] for one in (answer, right_alternate))
    for mine, its in ((got, right), (cold, right_cold)):
        expect({name: tuple(mine[name]) for name in its}, {name: tuple(its[name]) for name in its}, [], before)
    passed("alternate")


def range_times(answer: Callable[[list[tuple[str, float, float]], int], dict[str, float]]) -> None:
    """Checks ``answer(events, steps)``: milliseconds that one step takes in each range."""
    step_events = (("data", 0.0, 50.0), ("forward", 60.0, 300.0), ("forward", 370.0, 200.0), ("backward", 600.0, 500.0))
    events = [
        (name, 2000.0 * step + begin, microseconds + step)
        for step in range(4)
        for name, begin, microseconds in step_events
        if (name, step) != ("backward", 3)
    ]
    names = dict.fromkeys(name for name, _, _ in events)
    by_name = {name: [microseconds / 1e3 for other, _, microseconds in events if other == name] for name in names}
    right = {name: sum(times) / 4 for name, times in by_name.items()}

    def scaled(factor: float) -> dict[str, float]:
        return {name: factor * value for name, value in right.items()}

    got = answer(events, 4)
    expect(
        got,
        right,
        [
            (scaled(4.0), "that is the time of all steps together: divide by their number."),
            (scaled(1000.0), "that is in microseconds: a millisecond has 1000 of them."),
            (scaled(4000.0), "that is in microseconds, and of all steps together."),
            (
                {name: times[-1] for name, times in by_name.items()},
                "add up the events of the same name, do not keep the last.",
            ),
            (
                {name: statistics.mean(times) for name, times in by_name.items()},
                "divide by `steps`, not by how often a range occurs: it may occur twice in a step, or not at all.",
            ),
        ],
        "the numbers differ: add up durations by name, then convert and divide; do not round.",
    )
    require(list(got) == list(right), f"the keys are {list(got)}, they should be {list(right)}, in the step's order.")
    passed("range_times")


def amdahl(answer: Callable[[float, float], float]) -> None:
    """Compares ``answer(share, factor)`` with `labkit.measure.roofline.amdahl`."""
    share, factor = 0.6, 4.0  # with these numbers no two mistakes give the same result
    expect(
        answer(share, factor),
        right_amdahl(share, factor),
        [
            (factor, "that is the part's own factor: the rest of the step takes as long as before."),
            (1 - share + share / factor, "that is the time that is left: how many times faster is one over it."),
            (share * factor, "the rest of the step still takes its time: add up what is left of it, part by part."),
            (1 / (share - share / factor), "that is one over the time saved: take one over the time left."),
            (1 / (1 - share), "that is the bound for an infinite factor: the part still takes share / factor."),
            (1 - share + share * factor, "the part takes share / factor of the time, not share * factor."),
        ],
        "of the time 1, 1 - share stays and share / factor is left.",
    )
    expect(answer(0.9, math.inf), 10.0, [], "it must hold for an infinite factor, too: divide `share` by `factor`.")
    passed("amdahl")
