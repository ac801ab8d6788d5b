"""Checks of notebook 02: timing, time by range, Amdahl's law."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from labkit.course.checks.answers import passed, require
from labkit.course.fake_gpu import FakeGPU
from labkit.measure.roofline import amdahl as right_amdahl
from labkit.measure.timing import alternate as right_alternate


def alternate(answer: Callable) -> None:
    """Holds ``answer(steps, rounds, warmup, synchronise, clock)`` to `labkit.measure.timing.alternate`."""

    def measured(alternate: Callable, warmup: int) -> tuple[dict[str, list[float]], list[str]]:
        """What it measures on a fake GPU that is busy at first and slow while it warms up, and in which order."""
        gpu, order = FakeGPU(), []
        gpu.launch(7.0)

        def step(name: str, seconds: float) -> Callable[[], None]:
            def run() -> None:
                order.append(name)
                gpu.launch(seconds + (4.0 if order.count(name) <= 2 else 0.0))

            return run

        steps = {"a": step("a", 1.0), "b": step("b", 2.0)}
        return alternate(steps, rounds=3, warmup=warmup, synchronise=gpu.synchronise, clock=gpu.clock), order

    right, right_order = measured(right_alternate, warmup=2)
    got, order = measured(answer, warmup=2)
    require(isinstance(got, dict), f"a dict of lists is expected, not {type(got).__name__}. Is a `return` missing?")
    require(got.keys() == right.keys(), f"the dict's keys are {list(got)}, they should be the steps' names.")
    require(
        all(isinstance(values, list) and values for values in got.values()),
        "for each name a list is expected, with the seconds of every round: append to it.",
    )
    require(
        order.count("a") == order.count("b") == 5, "each step has to run warmup + rounds times: 2 + 3 in this check."
    )
    require(
        order == right_order, f"the order is {' '.join(order)}: take the steps in turn, {' '.join(right_order[:4])} ..."
    )
    times = [seconds for values in got.values() for seconds in values]
    require(max(times) < 4.0, "the first, slow rounds count: leave the warm-up out.")
    require(len(times) == 6, f"{len(times)} times came back: one for each of 3 rounds, of 2 steps.")
    require(
        max(times) > 0.5,
        "only the launch is measured: synchronise after the step, and then read the clock you were given, `clock()`.",
    )
    cold, right_cold = (measured(one, warmup=0)[0] for one in (answer, right_alternate))
    close = all(
        math.isclose(mine, its)
        for one, other in ((got, right), (cold, right_cold))
        for name in right
        for mine, its in zip(one[name], other[name], strict=True)
    )
    require(close, "work from before is measured as well: synchronise before reading the clock the first time.")
    passed("alternate")


def range_times(answer: Callable[[list[tuple[str, float, float]], int], dict[str, float]]) -> None:
    """Checks ``answer(events, steps)``, milliseconds of one step by range."""
    step_events = (("data", 0.0, 50.0), ("forward", 60.0, 300.0), ("forward", 370.0, 200.0), ("backward", 600.0, 500.0))
    events = [
        (name, 2000.0 * step + begin, microseconds + step)
        for step in range(4)
        for name, begin, microseconds in step_events
        if (name, step) != ("backward", 3)
    ]
    names = dict.fromkeys(name for name, _, _ in events)
    right = {name: sum(time for other, _, time in events if other == name) / 1e3 / 4 for name in names}
    got = answer(events, 4)
    require(isinstance(got, dict), f"a dict is expected, not {type(got).__name__}. Is a `return` missing?")
    require(list(got) == list(right), f"the keys are {list(got)}, they should be {list(right)}, in the step's order.")

    def scaled(factor: float) -> bool:
        return all(math.isclose(got[name], factor * right[name]) for name in right)

    require(not scaled(4.0), "that is the time of all steps together: divide by their number.")
    require(not scaled(1000.0), "that is in microseconds: a millisecond has 1000 of them.")
    require(not scaled(4000.0), "that is in microseconds, and of all steps together.")
    last = {name: microseconds / 1e3 for name, _, microseconds in events}
    require(got != last, "only the last event counts: add up the events of the same name.")
    means = {name: statistics.mean(time for other, _, time in events if other == name) / 1e3 for name in right}
    require(got != means, "divide by `steps`, not by how often a range occurs: it can do so twice in a step, or not.")
    require(scaled(1.0), "the numbers differ: add up durations by name, then convert and divide; do not round.")
    passed("range_times")


def amdahl(answer: Callable[[float, float], float]) -> None:
    """Holds ``answer(share, factor)`` to `labkit.measure.roofline.amdahl`."""
    share, factor = 0.6, 4.0  # at these numbers every mistake below has a result of its own
    got = answer(share, factor)
    require(isinstance(got, (int, float)), f"a number is expected, not {type(got).__name__}. Is a `return` missing?")
    mistakes = {
        factor: "that is the part's own factor: the rest of the step takes as long as before.",
        1 - share + share / factor: "that is the time that is left: how many times faster is one over it.",
        share * factor: "the rest of the step still takes its time: add up what is left of it, part by part.",
        1 / (share - share / factor): "that is one over the time saved: take one over the time left.",
        1 / (1 - share): "that is the bound for an infinite factor: the part still takes share / factor.",
        1 - share + share * factor: "the part takes share / factor of the time, not share * factor.",
    }
    for wrong, message in mistakes.items():
        require(not math.isclose(got, wrong), message)
    require(
        math.isclose(got, right_amdahl(share, factor)), "of the time 1, 1 - share stays and share / factor is left."
    )
    require(
        math.isclose(answer(0.9, math.inf), 10.0),
        "it must hold for an infinite factor, too: divide `share` by `factor`.",
    )
    passed("amdahl")
