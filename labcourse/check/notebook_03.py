"""Checks of notebook 03: busy and idle time, who launched a kernel, HTA's idle time of a step, a time on a timeline."""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame

from labcourse.check.answers import ask, cases, exercise, expect
from labcourse.check.formula import Mistakes, formula
from labcourse.shipped import public_trace
from labtrace.events import intervals
from labtrace.events.gaps import find_gaps

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

Kernels = tuple[str, list[float], list[float], str]  # in words, begins and ends, and a hint
INSIDE = "A kernel that ends before one that began earlier adds nothing: keep the latest end so far (max)."


def _arrays(*values: Sequence[float]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(one, dtype=float) for one in values)


def _other_kernels(random: Random) -> Kernels:
    """Kernels of which some overlap, in any order, to `busy`."""
    begin = [random.randrange(-160, 160) / 4 for _ in range(random.randrange(3, 9))]
    begin.append(random.choice(begin))  # two begin together
    end = [one + random.randrange(1, 80) / 4 for one in begin]
    return f"{len(begin)} kernels", begin, end, "Add up the times that at least one kernel covers."


@exercise()
def busy(answer: Callable[[ArrayLike, ArrayLike], float]) -> None:
    """Compares ``answer(begin, end)`` with `labtrace.events.intervals.busy`."""
    usual: list[Kernels] = [
        ("kernels one after the other", [0, 10, 25], [10, 20, 30], "Add up the times that kernels cover."),
        ("two that overlap", [0, 10], [15, 30], "Where they overlap, the time counts once."),
        ("a short one inside a long one", [0, 10, 30], [50, 20, 70], INSIDE),
        ("kernels in any order", [10, 0, 60, 30], [25, 20, 75, 40], "Sort by begin, and each end along with it."),
        ("times between microseconds", [0.25, 0.5, 3.0], [1.0, 1.75, 3.5], "Times need not be whole: do not round."),
        ("no kernel", [], [], "Nothing is covered: return 0.0."),
    ]
    for what, begin, end, advice in cases(usual, _other_kernels):
        first, last = _arrays(begin, end)
        right, wall = intervals.busy(first.copy(), last.copy()), last.max(initial=0) - first.min(initial=0)
        where = f"{what}, begin {begin}, end {end}"
        expect(
            ask(answer, first, last, if_it_fails=f"{where}: {advice}"),
            right,
            [
                ((last - first).sum(), "That is the sum of the durations: the time of an overlap counts once."),
                (wall, "That is the time from the first begin to the last end: the time between kernels is idle."),
                (wall - right, "That is how long the GPU was idle: the rest of the wall time is busy."),
                ((last - first)[:1].sum(), "That is the first kernel alone: `return` belongs outside the loop."),
            ],
            f"It should be {right:g}. {advice}",
            where,
        )


def _other_launched(random: Random) -> tuple[np.ndarray, ...]:
    """Kernels that partly overlap, with gaps of every cause, in any order, to `idle_by_cause`."""
    begin = [10.0]
    while len(begin) < 40:
        begin.append(begin[-1] + random.choice((random.uniform(2, 20), random.uniform(40, 90))))
    random.shuffle(begin)
    launched = [one - random.uniform(3, 60) for one in begin]
    return _arrays(launched, begin, [one + random.choice((random.uniform(3, 15), 30.0)) for one in begin])


def _total(us: ArrayLike, cause: np.ndarray) -> dict[str, float]:
    return {name: float(np.where(cause == name, us, 0).sum()) for name in ("host_wait", "kernel_wait", "other")}


def _gaps(launched: np.ndarray, begin: np.ndarray, end: np.ndarray) -> DataFrame:
    kernels = DataFrame({"call_begin": launched, "begin": begin, "end": end}).sort_values("begin")
    return find_gaps(kernels.reset_index(drop=True))


def _right_causes(launched: np.ndarray, begin: np.ndarray, end: np.ndarray) -> dict[str, float]:
    gaps = _gaps(launched, begin, end)
    return _total(gaps["us"], gaps["cause"].to_numpy())


@formula(
    _right_causes,
    [
        _arrays([0, 6, 12, 100, 106, 112], [10, 42, 30, 108, 120, 190], [40, 62, 70, 118, 150, 200]),
        _arrays([70, 2, 31, 5], [140, 20, 45, 60], [150, 30, 75, 65]),
        _arrays([0, 1, 2, 96, 130], [5, 44, 84, 100, 135], [15, 54, 94, 104, 140]),  # gaps of 29 and exactly 30
        _arrays([3], [7], [9]),
    ],
    _other_launched,
)
def idle_by_cause(launched: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Mistakes:
    """Compares ``answer(launched, begin, end)`` with the causes of `labkit.Trace.idle`, in microseconds."""
    gaps, order = _gaps(launched, begin, end), np.argsort(begin)
    us, cause = gaps["us"].to_numpy(), gaps["cause"].to_numpy()
    since = begin[order][1:] - end[order][:-1]
    late, by_length = cause == "host_wait", np.where(us < 30, "kernel_wait", "other")
    short_first = np.where(us < 30, "kernel_wait", np.where(late, "host_wait", "other"))
    yield _total(1, cause), "That is how many gaps there are: add up their microseconds."
    yield _total(us, short_first), "Ask for the launch first: a short gap is the host's, too, if the launch was late."
    yield _total(us, by_length), "Each is launched before it begins. Had its launch begun when the *gap* began?"
    yield _adds_up_to(us.sum() + min(begin)), "Wall time begins with the first kernel: no gap before it counts."
    unsorted = _gaps(launched, np.sort(begin), end[order])
    yield (
        _total(unsorted["us"], unsorted["cause"].to_numpy()),
        "Sort `launched` with begin and end: it is by kernel, too.",
    )
    up_to_30 = np.where(late, "host_wait", np.where(us <= 30, "kernel_wait", "other"))
    yield _total(us, up_to_30), "A gap of exactly 30 us is no kernel's wait any more: below 30."
    gaps_found = "All gaps are there, and some are under another cause. Was the launch late? Otherwise 30 us decide."
    yield _adds_up_to(us.sum()), gaps_found
    yield _adds_up_to(since[since > 0].sum()), INSIDE
    yield None, "Kernels in the order they began; a gap from the latest end so far to a later begin; all gaps added up?"


def _adds_up_to(us: float) -> Callable[[dict[str, float], object], bool]:
    return lambda got, _: math.isclose(sum(got.values()), us)


Tables = tuple[DataFrame, DataFrame, DataFrame]


def _tables(operators: list[tuple], calls: list[tuple], kernels: list[tuple]) -> Tables:
    return (
        DataFrame(operators, columns=["name", "begin", "end"]),
        DataFrame(calls, columns=["correlation", "begin"]),
        DataFrame(kernels, columns=["name", "correlation", "begin"]),
    )


def _other_tables(random: Random) -> Tables:
    """Two calls, to `who_launched`, inside an inner operator, and between one that has ended and one that begins.

    Names come twice, and the second kernel overtakes the first.
    """
    operators, calls, kernels = [], [], []
    names, correlations = ["aten::add", "aten::copy_", "aten::mul", "aten::pad", "aten::relu"], range(100, 1000)
    for number, (since, correlation) in enumerate(zip((4.0, 8.0), random.sample(correlations, 2), strict=True)):
        time = 20 * number + random.uniform(0, 4)
        begins = zip(random.sample(names, 5), (0, 1, 5, 6, 11), (15, 3, 10, 9, 14), strict=True)
        operators += [(name, time + begin, time + end) for name, begin, end in begins]
        calls.append((correlation, time + since))
        kernels.append((f"kernel {number}", correlation, 80 - 20 * number + random.uniform(0, 9)))
    for rows in (operators, calls, kernels):
        random.shuffle(rows)
    operators_table, calls_table, kernels_table = _tables(operators, calls, kernels)
    return operators_table[::-1], calls_table[::-1], kernels_table[::-1]  # their labels are not their places


def _launches(calls: DataFrame, kernels: DataFrame) -> dict[str, float]:
    begins = calls.set_index("correlation")["begin"][kernels["correlation"]]
    return dict(zip(kernels["name"], begins, strict=True))


def _owners(operators: DataFrame, times: dict[str, float], place: int = -1) -> dict[str, str]:
    """Of the operators that run at each time the one that began last, or at another `place`; "" where none does."""
    found = {}
    for name, time in times.items():
        around = operators[(operators["begin"] <= time) & (time < operators["end"])].sort_values("begin")
        found[name] = "" if around.empty else around["name"].iloc[place]
    return found


@formula(
    lambda operators, calls, kernels: _owners(operators, _launches(calls, kernels)),
    [
        _tables([("pad", 0, 9), ("copy_", 1, 8), ("relu", 10, 40), ("add", 50, 60)], [(7, 5)], [("a kernel", 7, 30)]),
        _tables([("conv2d", 0, 9), ("empty", 1, 3), ("add_", 6, 8)], [(7, 5)], [("a kernel", 7, 30)]),
        _tables([("relu", 0, 3), ("add", 4, 8)], [(2, 1), (1, 5)], [("first", 1, 30), ("second", 2, 40)]),
    ],
    _other_tables,
)
def who_launched(operators: DataFrame, calls: DataFrame, kernels: DataFrame) -> Mistakes:
    """Compares ``answer(operators, calls, kernels)`` with the innermost operator around each kernel's call."""
    launched = _launches(calls, kernels)
    outer = _owners(operators, launched, 0)
    yield outer, "Those are the outermost operators: of those around the call, the one that began last has launched it."
    ended = _owners(operators.assign(end=math.inf), launched)
    yield ended, "Those began last before the call, but they may have ended by then: the call is not inside such a one."
    ran = _owners(operators, dict(zip(kernels["name"], kernels["begin"], strict=True)))
    yield ran, "Those operators ran while the *kernel* began. Ask when its call was made: the correlation tells which."
    yield (
        lambda got, right: sorted(got.values()) == sorted(right.values()),
        "The operators are right, and the kernels exchanged: only the correlation tells.",
    )
    yield (
        None,
        "Find the call with the kernel's correlation, then the innermost operator at its begin: rows by label.",
    )


Kernel = tuple[int, int, int]  # begin, end, stream


@functools.cache
def _recorded(steps: int, kernels: tuple[Kernel, ...], marked: bool) -> TraceAnalysis:
    """HTA's analysis of a recording of equal steps of a millisecond, with HTA's defaults.

    Where steps are `marked` on the GPU, too, HTA keeps the last one's first kernel, launched before that mark.
    """
    from hta.trace_analysis import TraceAnalysis

    host, gpu, events = {"ph": "X", "pid": 1, "tid": 1}, {"ph": "X", "pid": 0}, list[dict]()
    for number, (begin, end, stream) in [(n, kernel) for n in range(steps) for kernel in kernels]:
        at, link = 1000 * number, {"correlation": 40_000 + len(events)}
        if begin == kernels[0][0]:
            name = f"ProfilerStep#{number + 7}"
            events.append(host | {"cat": "user_annotation", "name": name, "ts": at, "dur": 990})
            on_gpu = gpu | {"cat": "gpu_user_annotation", "name": name, "ts": at + begin, "dur": 900, "tid": stream}
            events += [on_gpu] * marked
            before = host | {"cat": "cpu_op", "name": "aten::empty", "dur": 0.1}
            events += [before | {"ts": at + 0.2 * place} for place in range(8)]
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + begin - 8, "dur": 5, "args": link}
        work = {"cat": "kernel", "name": "gemm", "ts": at + begin, "dur": end - begin, "tid": stream}
        events += [host | call, gpu | work | {"args": link | {"stream": stream, "device": 0}}]
    logging.getLogger("hta").setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        file = Path(folder, "steps.json")
        file.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
        return TraceAnalysis(trace_files={0: str(file)}, trace_dir="")


def _idle_us(steps: int, kernels: tuple[Kernel, ...], marked: bool) -> float:
    """Of a step that HTA kept whole: of several steps it leaves out the last one."""
    table = _recorded(steps, kernels, marked).get_temporal_breakdown(visualize=False)
    return float(table["idle_time(us)"].item()) / max(1, steps - 1)


def _other_steps(random: Random) -> tuple[int, tuple[Kernel, ...], bool]:
    """Kernels of a step on two streams, of which some overlap, to `idle_per_step`."""
    begins = sorted(random.sample(range(10, 700, 20), 6))
    kernels = tuple((one, one + random.randrange(10, 90), random.choice((7, 20))) for one in begins)
    return random.randrange(1, 7), kernels, random.random() < 0.5


ONE_STREAM = ((10, 200, 7), (300, 400, 7), (500, 700, 7))
TWO_STREAMS = ((10, 300, 7), (200, 400, 20), (600, 650, 7), (700, 720, 7))


@formula(
    _idle_us,
    [(4, ONE_STREAM, True), (4, TWO_STREAMS, False), (2, TWO_STREAMS, True), (1, ONE_STREAM, False)],
    _other_steps,
    lambda *case: (deepcopy(_recorded(*case)),),
)
def idle_per_step(steps: int, kernels: tuple[Kernel, ...], marked: bool) -> Mistakes:
    """Compares ``answer(analysis)`` with HTA's idle time over the number of steps that HTA kept whole."""
    analysis, whole = _recorded(steps, kernels, marked), max(1, steps - 1)
    table, us = analysis.get_temporal_breakdown(visualize=False), _idle_us(steps, kernels, marked) * whole
    kept = "A step counts if HTA kept more than half as many of its kernels as of the step with the most."
    yield us / len(analysis.get_profiler_steps()), f"You counted each step that HTA lists. {kept}"
    yield us / steps, f"You counted all recorded steps. {kept}"
    one_less = len(analysis.get_profiler_steps()) - 1
    yield us / max(1, one_less), f"One step less than HTA lists is not always right. {kept}"
    yield us, "That is the idle time of all steps that HTA kept: divide by how many these are."
    of_streams = analysis.get_idle_time_breakdown(visualize=False)[0]["idle_time"].sum()
    yield of_streams / whole, "The streams' idle times do not add up: while one is idle, another is busy."
    yield table["idle_time_pctg"].item(), "That is a share in percent: microseconds are asked for."
    yield table["kernel_time(us)"].item() / whole, "kernel_time(us) is the wall time: idle_time(us) is a part of it."
    yield None, f"Divide idle_time(us) of get_temporal_breakdown by the steps. {kept}"


@exercise(again=False)
def stream_empty(answer: Callable[[], float]) -> None:
    """Asks when the long gap in step 6 of "resnet50_workers0" begins, in ms since the first event, within 1 ms."""
    gaps = public_trace("resnet50_workers0").gaps(5).sort_values("begin_us")  # each step waits for its pictures once
    begins, took = gaps["begin_us"].to_numpy() / 1e3, gaps["us"].to_numpy() / 1e3
    found = {begins[0] + took[0]: "There the next kernel begins, and the gap ends.", took[0]: "That is how long it is."}
    found |= dict.fromkeys(begins[1:], "That is the gap of a later step.") | {1e3 * begins[0]: "Give milliseconds."}
    found |= {begins[0] - 170: "Count from the first event, and not from where the view begins: the axis says so."}
    mistakes = [(lambda got, _, wrong=wrong: abs(got - wrong) < 1, message) for wrong, message in found.items()]
    otherwise = "Zoom into stream 7 until you see single kernels. Where does the last one before the gap end?"
    got = ask(answer)
    near = isinstance(got, int | float) and abs(got - begins[0]) < 1
    expect(begins[0] if near else got, begins[0], mistakes, otherwise, "the gap's begin, in milliseconds")
