"""Checks of notebook 03: busy and idle time, what bounds a step, three traces to diagnose, HTA's wall time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import ArrayLike

from labkit.course.check.answers import drawn, exercise, expect, failing, require, require_kind
from labkit.models.cyclegan import CycleGAN
from labkit.simulate import replay, step_operators, write_trace
from labkit.trace import Trace
from labkit.traces.intervals import busy as right_busy
from labkit.traces.verdict import bound_by as right_bound_by

BOUNDS = ("data", "host", "compute", "memory", "communication", "several")
WORDS = f"That is none of the words: give the word alone, one of {', '.join(BOUNDS)}."
Launches = tuple[list[float], list[float], list[float], list[float]]  # calls, begins and ends of kernels; steps
ANOTHER_WORD = (lambda got, _: got not in BOUNDS, WORDS)
UNKNOWN = {"A": "compute", "B": "data", "C": "host"}  # the bottleneck of each of `unknown_traces`


def _many_kernels(random: Random) -> dict[str, tuple[list[float], list[float], str]]:
    """Other inputs to `busy`: kernels of which some overlap, in any order."""
    cases = {}
    for n in random.sample(range(1, 20), 6):
        begin = [round(random.uniform(0, 100), 2) for _ in range(n)]
        end = [round(one + random.uniform(0.1, 20), 2) for one in begin]
        cases[f"{n} kernels"] = begin, end, "Add up the times that at least one kernel covers."
    return cases


@exercise(right_busy)
def busy(answer: Callable[[ArrayLike, ArrayLike], float]) -> None:
    """Compares ``answer(begin, end)`` with `labkit.traces.intervals.busy`."""
    usual: dict[str, tuple[list[float], list[float], str]] = {
        "kernels one after the other": ([0, 10, 25], [10, 20, 30], "Add up the times that kernels cover."),
        "two that overlap": ([0, 10], [15, 30], "Where they overlap, the time counts once."),
        "a short one inside a long one": (
            [0, 10, 30],
            [50, 20, 70],
            "A kernel that ends before one that began earlier adds nothing: keep the latest end so far (max).",
        ),
        "kernels not in the order they began": (
            [10, 0, 60, 30],
            [25, 20, 75, 40],
            "Sort by begin, and each end along with it.",
        ),
        "times between microseconds": (
            [0.25, 0.5, 3.0],
            [1.0, 1.75, 3.5],
            "Kernels begin and end between two whole microseconds: neither round nor count these.",
        ),
        "no kernel": ([], [], "Nothing is covered."),
    }
    for what, (begin, end, hint) in drawn(usual, _many_kernels).items():
        first, last = np.array(begin, dtype=float), np.array(end, dtype=float)
        right, wall = right_busy(first.copy(), last.copy()), last.max(initial=0) - first.min(initial=0)
        with failing(() if begin else (IndexError, ValueError), "without any kernel your function should return 0.0"):
            got = answer(first, last)
        expect(
            got,
            right,
            [
                (
                    (last - first).sum(),
                    "That is the sum of the durations: the time of an overlap counts once.",
                ),
                (wall, "That is the time from the first begin to the last end: the time between kernels is idle."),
                (wall - right, "That is how long the GPU was idle: the rest of the wall time is busy."),
                ((last - first)[:1].sum(), "That is the first kernel alone: `return` belongs outside the loop."),
            ],
            f"It should be {right:g}. {hint}",
            f"{what}, begin {begin}, end {end}",
        )
        kept = first.tolist() == begin and last.tolist() == end
        copy = "work on a copy (np.argsort gives an order, np.sort a copy)."
        require(kept, f"the arrays you were given were changed: {copy}")


@exercise()
def idle_by_hand(answer: Mapping[str, float]) -> None:
    """Compares the idle times read off the trace of six kernels with the right ones, in microseconds."""
    alone = "Those are the gaps of stream 7 alone: while it pauses, stream 20 may be busy. When is neither of them?"
    launched = "One of the gaps is not the host's fault: its kernel had been launched when the gap began."
    late = "kernel_wait and other are swapped: a gap that is long, although its kernel had been launched, is `other`."
    expect(
        answer,
        {"host_wait": 38, "kernel_wait": 2, "other": 40},
        [
            (lambda got, _: sum(got.values()) <= 1, "The times are asked for in microseconds, as the trace has them."),
            ({"host_wait": 1, "kernel_wait": 1, "other": 1}, "That is how many gaps there are: how long are they?"),
            ({"kernel_wait": 40, "other": 2}, late),
            ({"host_wait": 40, "other": 38}, "host_wait and other are swapped: which kernel was launched too late?"),
            ({"host_wait": 166}, "Those are the gaps of both streams, added up: when is neither of them busy?"),
            ({"kernel_wait": 4}, alone),
            ({"host_wait": 46}, alone),
            ({"host_wait": 78}, launched),
            ({"host_wait": 80}, launched),
            ({"host_wait": 50}, "A copy (Memcpy) keeps the GPU busy, too: the gap ends where the copy begins."),
            (lambda got, _: sum(got.values()) == 90, "Wall time begins with the first kernel: no gap before it."),
        ],
        "For each of the three gaps, find the kernel that ends it: had its launch begun when the gap began? If so, is "
        "the gap shorter than 30 microseconds? A cause without a gap has 0.",
        "the trace of six kernels",
    )


def _any_costs(random: Random) -> list[tuple[dict[str, float], str]]:
    """Other inputs to `bound_by`: costs around a tenth, of which the first is more or less than twice the second."""
    cases = []
    for _ in range(30):
        first = random.uniform(0.05, 0.6)
        costs = [first, *(first * random.uniform(0, random.choice((0.45, 0.9))) for _ in range(4))]
        random.shuffle(costs)
        names = [f"cost_of_{part}" for part in BOUNDS[:-1]]
        others = {name: random.random() for name in ("idle_of_wall", "long_delays_of_kernels")}
        shares = {f"{part}_of_busy": random.random() for part in ("compute", "memory", "communication")}
        numbers = others | dict(mean_queue=random.uniform(0, 900)) | shares | dict(zip(names, costs, strict=True))
        cases.append((numbers, "Which cost is the largest, is it a tenth, and is it twice the next?"))
    return cases


@exercise(right_bound_by)
def bound_by(answer: Callable[[Mapping[str, float]], str]) -> None:
    """Compares ``answer(numbers)`` with `labkit.traces.verdict.bound_by`."""
    busy_gpu = dict(
        idle_of_wall=0.02,
        long_delays_of_kernels=0.97,
        mean_queue=800.0,
        compute_of_busy=0.9,
        memory_of_busy=0.1,
        communication_of_busy=0.0,
        cost_of_data=0.0,
        cost_of_host=0.01,
        cost_of_compute=0.85,
        cost_of_memory=0.08,
        cost_of_communication=0.0,
    )
    short_queue = dict(long_delays_of_kernels=0.01, mean_queue=0.5)
    late_host = busy_gpu | short_queue | dict(idle_of_wall=0.6, cost_of_host=0.55, cost_of_compute=0.02)
    just_idle = late_host | dict(idle_of_wall=0.45, cost_of_host=0.4)
    two = busy_gpu | dict(idle_of_wall=0.39, cost_of_data=0.29, cost_of_host=0.36, cost_of_compute=0.02)
    hidden = busy_gpu | dict(compute_of_busy=0.6, communication_of_busy=0.9, cost_of_compute=0.3, cost_of_memory=0.0)
    little = busy_gpu | dict(cost_of_compute=0.05, cost_of_memory=0.0)
    full = "97% of the kernels waited long, and the GPU was hardly idle: a full queue. (Costs go from 0 to 1.)"
    cliff = "The GPU is idle for less than half of the time, and still nothing costs as much as the host."
    half = "Data costs 29% and the host 36%: the host's cost is not twice that, so none dominates."
    behind = (
        "Communication runs for 90% of the busy time, but hidden behind other kernels: without it little is gained."
    )
    nothing = "No part costs a tenth of the wall time: several would have to be faster at once."
    usual = [
        (busy_gpu, full),
        (late_host, "90% compute is a share of the busy time, and the cost of compute is 2%."),
        (late_host | dict(mean_queue=400.0), "The queue is long on average; the host costs most all the same."),
        (just_idle, cliff),
        (two, half),
        (two | dict(cost_of_host=0.1), "The loading of data costs 29%, and twice as much as any other part."),
        (hidden, behind),
        (little, nothing),
        (little | dict(cost_of_compute=0.12), "The cost of compute is over a tenth, and the next cost is 1%."),
        (busy_gpu | dict(cost_of_compute=0.2, cost_of_memory=0.5), "Copies cost 50%: that is memory."),
        (hidden | dict(cost_of_compute=0.1, cost_of_communication=0.4), "Communication can dominate, too."),
        (hidden | dict(cost_of_compute=0.25, cost_of_communication=0.4), "The first has to cost twice the second."),
    ]
    for numbers, hint in drawn(usual, _any_costs):
        told = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
        with failing(KeyError, f"there is no such number: the keys are {', '.join(numbers)}"):
            got = answer(dict(numbers))
        expect(got, right_bound_by(numbers), [ANOTHER_WORD], hint, told)


def unknown_traces(folder: Path | str) -> dict[str, Trace]:
    """Three traces to diagnose, SIMULATED, by name; they are written to `folder`."""
    operators = {batch_size: step_operators(CycleGAN(), batch_size=batch_size) for batch_size in (1, 4)}
    played = {
        "A": replay(operators[4], host_us=6.0),
        "B": replay(operators[1], host_us=6.0, data_us=90_000.0, steps=4),
        "C": replay(operators[1], host_us=60.0),
    }
    return {name: Trace(write_trace(one, Path(folder, f"{name}.json.gz"))) for name, one in played.items()}


@exercise()
def diagnosis(answer: Mapping[str, str]) -> None:
    """Compares a diagnosis of `unknown_traces`, by name, with their bottlenecks."""
    hints = {
        "A": "Nearly every kernel started long after its launch: was the GPU idle meanwhile?",
        "B": "The queue is empty, but why? `gaps()` says which of labkit's ranges the host was in at the largest gaps.",
        "C": "Which share of the wall time was the GPU idle? Was the queue full or empty in most of the idle time?",
    }
    kinds = (
        lambda got, right: {got, right} <= {"compute", "memory", "communication"},
        "The GPU is busy, that is right: which kind of kernel has the largest share of the busy time?",
    )
    require_kind(answer, f"a dict with the keys {[*UNKNOWN]}")
    for name, right in UNKNOWN.items():
        require_kind(answer[name], "a word", asked=f"trace {name}: ")
        expect(answer[name].strip().lower(), right, [ANOTHER_WORD, kinds], hints[name], f"trace {name}")


def _many_launches(random: Random) -> list[Launches]:
    """Other inputs to `hta_wall`: launches of three to five steps, and kernels that begin some time after them."""
    cases = []
    for _ in range(6):
        steps = [100.0 * number for number in range(random.randrange(3, 6))]
        launched = sorted(random.uniform(0, steps[-1] + 90) for _ in range(30))
        launched += [steps[-2] + 80, steps[-1] + 5]
        begin = [call + random.uniform(5, 60) for call in launched]
        begin[-2] = steps[-1] + 20
        cases.append((launched, begin, [one + random.uniform(1, 40) for one in begin], steps))
    return cases


@exercise()
def hta_wall(answer: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], float]) -> None:
    """Compares ``answer(launched, begin, end, steps)`` with the wall time that HTA counts."""
    usual: list[Launches] = [
        ([1.0, 12.0, 90.0, 101.0], [10.0, 20.0, 130.0, 150.0], [25.0, 40.0, 145.0, 160.0], [0.0, 100.0]),
        ([5.0, 95.0, 40.0, 205.0], [20.0, 250.0, 60.0, 280.0], [50.0, 270.0, 300.0, 290.0], [0.0, 100.0, 200.0]),
        ([3.0, np.nan, 60.0, 120.0], [12.0, 500.0, 70.0, 130.0], [22.0, 510.0, 90.0, 140.0], [0.0, 50.0, 110.0]),
    ]
    for case in drawn(usual, _many_launches):
        launched, begin, end, steps = map(np.array, case)
        got = answer(launched.copy(), begin.copy(), end.copy(), steps.copy())
        kept, last = launched < steps.max(), steps.max()
        first, of_first_step = begin[kept].min(), launched < np.sort(steps)[1]
        began = (
            "Those are the kernels that *began* before the last step. HTA asks when they were launched: a kernel of an "
        )
        mistakes = [
            (end.max() - begin.min(), "That is the wall time of all kernels: HTA leaves some of them out."),
            (end[begin < last].max() - first, began + "earlier step may still wait when the last one begins."),
            ((end - begin)[kept].sum(), "That is the sum of the durations. The wall time has the pauses in it, too."),
            (right_busy(begin[kept], end[kept]), "That is the busy time: the pauses belong to the wall time, too."),
            (end[kept].max(), "That is the last end: the wall time begins with the first kernel, not at 0."),
            (end[kept][-1] - begin[kept][0], "The kernel launched last need not end last: take the largest end."),
            (last - first, "A kernel that HTA keeps counts whole, after the last step began, too."),
            (
                end[of_first_step].max() - first,
                "Those are the kernels of the first step: all steps but the last count.",
            ),
        ]
        right = end[kept].max() - first
        otherwise = f"It should be {right:g}: of the kernels launched before the last step, last end less first begin."
        expect(
            got, right, mistakes, otherwise, f"launched {case[0]}, begin {case[1]}, end {case[2]}, steps {steps}"[:300]
        )
