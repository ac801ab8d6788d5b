"""Checks of notebook 03: busy time, idle time by hand, what bounds a step, and three traces to diagnose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from labkit.course.checks.answers import passed, require
from labkit.models.cyclegan import CycleGAN
from labkit.simulate import replay, step_operators, write_trace
from labkit.traces.intervals import busy as right_busy
from labkit.traces.trace import Trace
from labkit.traces.verdict import bound_by as right_bound_by

BOUNDS = ("data", "host", "unknown", "compute", "memory", "communication")
UNKNOWN = {"A": "compute", "B": "data", "C": "host"}  # what bounds each of `unknown_traces`


def busy(answer: Callable[[ArrayLike, ArrayLike], float]) -> None:
    """Holds ``answer(begin, end)`` to `labkit.traces.intervals.busy`."""
    cases = {
        "kernels one after the other": ([0, 10, 25], [10, 20, 30]),
        "two that overlap": ([0, 10], [15, 30]),
        "a short one inside a long one": ([0, 10, 30], [50, 20, 70]),
        "kernels not in the order they began": ([40, 0, 10], [50, 20, 30]),
        "times between microseconds": ([0.25, 0.5, 3.0], [1.0, 1.75, 3.5]),
        "no kernel": ([], []),
    }
    for what, (begin, end) in cases.items():
        begin, end = np.array(begin, dtype=float), np.array(end, dtype=float)
        before = begin.copy(), end.copy()
        got, right = _busy_time(answer, begin, end), right_busy(begin, end)
        require(isinstance(got, Real), f"a number is expected, not {type(got).__name__}. Is a `return` missing?")
        where = f"{what}, begin {before[0].tolist()}, end {before[1].tolist()}: your answer is {got:g}"
        if not math.isclose(got, right):
            total, wall = float(np.sum(end - begin)), float(np.max(end, initial=0) - np.min(begin, initial=0))
            require(
                not math.isclose(got, total),
                f"{where}. That is the sum of the durations: where two kernels overlap, the time counts once.",
            )
            require(
                not math.isclose(got, wall),
                f"{where}. That is the time from the first begin to the last end: what lies between kernels is idle.",
            )
            require(
                what != "a short one inside a long one",
                f"{where}. A kernel may end before one that began earlier: keep the latest end so far (max).",
            )
            require(
                not what.startswith("kernels not"), f"{where}. Sort by begin first, and take each end along with it."
            )
            require(False, f"{where}, it should be {right:g}.")
        require(
            np.array_equal(before[0], begin) and np.array_equal(before[1], end),
            "the arrays you were given were changed: work on a copy (np.argsort gives an order, np.sort a copy).",
        )
    passed("busy")


def _busy_time(answer: Callable[[ArrayLike, ArrayLike], float], begin: np.ndarray, end: np.ndarray) -> float:
    """The answer as a plain number, if it is one in some form."""
    try:
        got = answer(begin, end)
    except (IndexError, ValueError) as error:
        require(len(begin) > 0, f"without any kernel your function fails ({error}): it should return 0.0.")
        raise
    return got.item() if hasattr(got, "item") and getattr(got, "ndim", 1) == 0 else got


def idle_by_hand(answer: Mapping[str, float]) -> None:
    """Holds the idle times read off the trace of six kernels to what they are; in microseconds."""
    right = {"host_wait": 38, "kernel_wait": 2, "other": 40}
    require(
        isinstance(answer, Mapping) and answer.keys() == right.keys(), f"a dict is expected with the keys {[*right]}."
    )
    require(
        all(isinstance(value, Real) for value in answer.values()),
        "put a number for each cause, in microseconds: 0 if there was no such gap.",
    )
    require(
        answer["host_wait"] != 166,
        "those are the gaps of both streams, added up: the device is idle only while neither of them is busy.",
    )
    require(
        answer["kernel_wait"] != 4 and answer["host_wait"] != 46,
        "those are the gaps of stream 7 by itself: while it pauses, stream 20 may be busy. Look for the times at which "
        "neither of them is.",
    )
    require(
        answer["host_wait"] not in (78, 80),
        "one of the gaps is not the host's fault: its kernel had been launched when the gap began.",
    )
    require(answer["host_wait"] != 50, "a copy (Memcpy) keeps the GPU busy, too: the gap ends where the copy begins.")
    require(
        sum(answer.values()) != 90,
        "wall time begins with the first kernel, not at 0: what is before it is no gap between kernels.",
    )
    for cause, us in right.items():
        require(
            math.isclose(answer[cause], us),
            f"{cause} is not {answer[cause]:g}. For each of the three gaps, find the kernel that ends it: had its "
            "launch begun when the gap began? If so, is the gap shorter than 30 microseconds?",
        )
    passed("idle_by_hand")


def bound_by(answer: Callable[[Mapping[str, float]], str]) -> None:
    """Holds ``answer(numbers)`` to `labkit.traces.verdict.bound_by`."""
    busy_gpu = dict(
        idle_of_wall=0.02,
        host_wait_of_idle=0.9,
        data_of_idle=0.0,
        compute_of_busy=0.9,
        memory_of_busy=0.1,
        communication_of_busy=0.0,
        long_delays_of_kernels=0.97,
        mean_queue=800.0,
    )
    idle_gpu = busy_gpu | dict(idle_of_wall=0.6, compute_of_busy=0.93, long_delays_of_kernels=0.01, mean_queue=0.5)
    cases = [
        (busy_gpu, "97% of the kernels waited long, and the GPU was idle for 2% of the time: that is a full queue."),
        (idle_gpu, "93% compute is a share of the busy time, and the GPU was idle for most of the wall time."),
        (idle_gpu | {"data_of_idle": 0.8}, "in most of the idle time the host was loading data: look at that first."),
        (
            busy_gpu | {"data_of_idle": 0.8},
            "the host was loading data for most of the idle time, but there is hardly any idle time.",
        ),
        (
            busy_gpu | dict(compute_of_busy=0.3, memory_of_busy=0.8),
            "of a busy GPU, the largest of the three shares decides; they may overlap and pass 1 together.",
        ),
        (
            busy_gpu | dict(compute_of_busy=0.3, memory_of_busy=0.1, communication_of_busy=0.6),
            "there is a third kind of kernel: communication.",
        ),
        (idle_gpu | {"host_wait_of_idle": 0.2}, 'neither data nor the host covers half of the idle time: "unknown".'),
        (
            idle_gpu | dict(long_delays_of_kernels=0.99, mean_queue=400.0),
            "here the queue is long on average, and the GPU is idle all the same: the idle time decides.",
        ),
        (
            busy_gpu | {"idle_of_wall": 0.45, "mean_queue": 0.5},
            "idle for less than half of the wall time is not host bound.",
        ),
        (idle_gpu | {"idle_of_wall": 0.55}, "idle for more than half of the wall time, waiting for the host."),
        (idle_gpu | {"data_of_idle": 0.45}, "data covers less than half of the idle time, and the host most of it."),
        (idle_gpu | {"data_of_idle": 0.55}, "data covers more than half of the idle time."),
        (
            busy_gpu | dict(compute_of_busy=0.35, memory_of_busy=0.4, communication_of_busy=0.25),
            "the largest share decides, even if it is less than half.",
        ),
    ]
    for numbers, hint in cases:
        got, right = answer(dict(numbers)), right_bound_by(numbers)
        require(isinstance(got, str), f"a word is expected, not {type(got).__name__}. Is a `return` missing?")
        require(got in BOUNDS, f"{got!r} is none of the words: they are {', '.join(BOUNDS)}.")
        told = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
        require(got == right, f"{hint} Of {told} your answer is {got!r}.")
    passed("bound_by")


def unknown_traces(folder: Path | str) -> dict[str, Trace]:
    """Three traces to diagnose, SIMULATED, by name; they are written to `folder`."""
    operators = {batch_size: step_operators(CycleGAN(), batch_size=batch_size) for batch_size in (1, 4)}
    played = {
        "A": replay(operators[4], host_us=6.0),
        "B": replay(operators[1], host_us=6.0, data_us=90_000.0, steps=4),
        "C": replay(operators[1], host_us=60.0),
    }
    return {name: Trace(write_trace(one, Path(folder, f"{name}.json.gz"))) for name, one in played.items()}


def diagnosis(answer: Mapping[str, str]) -> None:
    """Holds a diagnosis of `unknown_traces`, by name, to what bounds them."""
    require(
        isinstance(answer, Mapping) and answer.keys() == UNKNOWN.keys(), f"a dict is expected with {[*UNKNOWN]} in it."
    )
    given = {name: str(value).strip().lower() for name, value in answer.items()}
    require(set(given.values()) <= set(BOUNDS), f"put one of these words for each trace: {', '.join(BOUNDS)}.")
    hints = {
        "A": "nearly every kernel started long after its launch: was the GPU idle meanwhile?",
        "B": "which of labkit's ranges was the host in when the largest gaps began? `gaps()` has a column for it.",
        "C": "which share of the wall time was the GPU idle, and was the launch queue full or empty?",
    }
    for name, right in UNKNOWN.items():
        require(given[name] == right, f"trace {name} is not bound by {given[name]}: {hints[name]}")
    passed("diagnosis")
