"""Checks of notebook 03: busy time, idle time by hand, what bounds a step, and three traces to diagnose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from labkit.course.check.answers import expect, failing, passed, require, require_kind
from labkit.models.cyclegan import CycleGAN
from labkit.simulate import replay, step_operators, write_trace
from labkit.traces.intervals import busy as right_busy
from labkit.traces.trace import Trace
from labkit.traces.verdict import bound_by as right_bound_by

BOUNDS = ("data", "host", "unknown", "compute", "memory", "communication")
ANOTHER_WORD = (lambda got, _: got not in BOUNDS, f"That is none of the words: they are {', '.join(BOUNDS)}.")
UNKNOWN = {"A": "compute", "B": "data", "C": "host"}  # the bottleneck of each of `unknown_traces`


def busy(answer: Callable[[ArrayLike, ArrayLike], float]) -> None:
    """Compares ``answer(begin, end)`` with `labkit.traces.intervals.busy`."""
    inside = "A kernel may end before one that began earlier: keep the latest end so far (max)."
    cases = {
        "kernels one after the other": ([0, 10, 25], [10, 20, 30], ""),
        "two that overlap": ([0, 10], [15, 30], ""),
        "a short one inside a long one": ([0, 10, 30], [50, 20, 70], inside),
        "kernels not in the order they began": (
            [40, 0, 10],
            [50, 20, 30],
            "Sort by begin, and each end along with it.",
        ),
        "times between microseconds": ([0.25, 0.5, 3.0], [1.0, 1.75, 3.5], ""),
        "no kernel": ([], [], ""),
    }
    total = "That is the sum of the durations: where two kernels overlap, the time counts once."
    wall = "That is the time from the first begin to the last end: the time between kernels is idle."
    for what, (begin, end, hint) in cases.items():
        first, last = np.array(begin, dtype=float), np.array(end, dtype=float)
        right = right_busy(first.copy(), last.copy())
        mistakes = [((last - first).sum(), total), (last.max(initial=0) - first.min(initial=0), wall)]
        with failing(() if begin else (IndexError, ValueError), "without any kernel your function should return 0.0"):
            got = answer(first, last)
        expect(got, right, mistakes, hint or f"It should be {right:g}.", f"{what}, begin {begin}, end {end}")
        require(
            first.tolist() == begin and last.tolist() == end,
            "the arrays you were given were changed: work on a copy (np.argsort gives an order, np.sort a copy).",
        )
    passed("busy")


def idle_by_hand(answer: Mapping[str, float]) -> None:
    """Compares the idle times read off the trace of six kernels with the right ones, in microseconds."""
    alone = "Those are the gaps of stream 7 alone: while it pauses, stream 20 may be busy. When is neither of them?"
    launched = "One of the gaps is not the host's fault: its kernel had been launched when the gap began."
    expect(
        answer,
        {"host_wait": 38, "kernel_wait": 2, "other": 40},
        [
            ({"host_wait": 166}, "Those are the gaps of both streams, added up: when is neither of them busy?"),
            ({"kernel_wait": 4}, alone),
            ({"host_wait": 46}, alone),
            ({"host_wait": 78}, launched),
            ({"host_wait": 80}, launched),
            ({"host_wait": 50}, "A copy (Memcpy) keeps the GPU busy, too: the gap ends where the copy begins."),
            (
                lambda got, _: sum(got.values()) == 90,
                "Wall time begins with the first kernel, not at 0: no gap before it.",
            ),
        ],
        "For each of the three gaps, find the kernel that ends it: had its launch begun when the gap began? If so, is "
        "the gap shorter than 30 microseconds? A cause without a gap has 0.",
        "the trace of six kernels",
    )
    passed("idle_by_hand")


def bound_by(answer: Callable[[Mapping[str, float]], str]) -> None:
    """Compares ``answer(numbers)`` with `labkit.traces.verdict.bound_by`."""
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
    full_queue = dict(long_delays_of_kernels=0.99, mean_queue=400.0)
    no_data = "The host was loading data for most of the idle time, but there is hardly any idle time."
    three = dict(compute_of_busy=0.3, memory_of_busy=0.1, communication_of_busy=0.6)
    even = dict(compute_of_busy=0.35, memory_of_busy=0.4, communication_of_busy=0.25)
    for numbers, hint in (
        (busy_gpu, "97% of the kernels waited long, and the GPU was idle for 2% of the time: that is a full queue."),
        (idle_gpu, "93% compute is a share of the busy time, and the GPU was idle for most of the wall time."),
        (idle_gpu | full_queue, "The queue is long on average, and the GPU is idle all the same: idle time decides."),
        (
            busy_gpu | dict(idle_of_wall=0.45, mean_queue=0.5),
            "Idle for less than half of the wall time is not host bound.",
        ),
        (idle_gpu | {"data_of_idle": 0.8}, "In most of the idle time the host was loading data: look at that first."),
        (busy_gpu | {"data_of_idle": 0.8}, no_data),
        (busy_gpu | dict(compute_of_busy=0.3, memory_of_busy=0.8), "The largest share decides; shares may overlap."),
        (busy_gpu | three, "There is a third kind of kernel: communication."),
        (idle_gpu | {"host_wait_of_idle": 0.2}, 'Neither data nor the host covers half of the idle time: "unknown".'),
        (idle_gpu | {"idle_of_wall": 0.55}, "Idle for more than half of the wall time, waiting for the host."),
        (idle_gpu | {"data_of_idle": 0.45}, "Data covers less than half of the idle time, and the host most of it."),
        (idle_gpu | {"data_of_idle": 0.55}, "Data covers more than half of the idle time."),
        (busy_gpu | even, "The largest share decides, even if it is less than half."),
    ):
        told = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
        expect(answer(dict(numbers)), right_bound_by(numbers), [ANOTHER_WORD], hint, told)
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
    """Compares a diagnosis of `unknown_traces`, by name, with their bottlenecks."""
    hints = {
        "A": "Nearly every kernel started long after its launch: was the GPU idle meanwhile?",
        "B": "The queue is empty, but why? `gaps()` says which of labkit's ranges the host was in at the largest gaps.",
        "C": "Which share of the wall time was the GPU idle, and was the launch queue full or empty?",
    }
    require_kind(answer, f"a dict with the keys {[*UNKNOWN]}")
    for name, right in UNKNOWN.items():
        expect(str(answer[name]).strip().lower(), right, [ANOTHER_WORD], hints[name], f"trace {name}")
    passed("diagnosis")
