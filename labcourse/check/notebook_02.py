"""Checks of notebook 02: timing, a profile, Amdahl's law."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from labcourse.check.answers import drawn, exercise, expect, guarded, kind, require, require_kind
from labcourse.check.formula import Mistakes, formula
from labcourse.stand_ins import FakeGPU
from labkit.measure.roofline import amdahl as right_amdahl
from labkit.measure.timing import alternate as right_alternate

# Of the pairs that `next` gives in turn, each kind is among the twelve cases that a check draws.
KERNELS = itertools.cycle((1e-6, 1e-4))  # shorter than a launch, and longer
PARTS = itertools.cycle([(0.99, 9.0), (0.99, 0.9), (0.0, 9.0), (0.99, math.inf)])  # the largest share and factor


def _right_share(kernel_s: float, kernels: int, launch_s: float) -> float:
    longer, shorter = max(kernel_s, launch_s), min(kernel_s, launch_s)
    return kernels * kernel_s / (kernels * longer + shorter)


def _for_gpu(kernel_s: float, kernels: int, launch_s: float) -> tuple[SimpleNamespace, float, int]:
    """The inputs of `busy_share`: a fake GPU, seen by its three methods alone, that still has work of 7 seconds."""
    gpu = FakeGPU(launch_s)
    gpu.launch(7.0)
    return SimpleNamespace(launch=gpu.launch, synchronise=gpu.synchronise, clock=gpu.clock), kernel_s, kernels


@formula(
    _right_share,
    [(100e-6, 50, 1e-5), (2e-6, 1000, 1e-5), (2e-6, 1000, 5e-6)],
    lambda random: (next(KERNELS) * random.uniform(1, 9), random.randrange(9, 99), random.uniform(1e-5, 9e-5)),
    _for_gpu,
)
def busy_share(kernel_s: float, kernels: int, launch_s: float) -> Mistakes:
    """Compares ``answer(gpu, kernel_s, kernels)`` with the share of the time for which a busy `FakeGPU` works."""
    right, work = _right_share(kernel_s, kernels, launch_s), kernels * kernel_s
    took, longer = work / right, max(kernel_s, launch_s)
    yield kernel_s / launch_s, "That is the time of the launches alone: synchronise before you read the clock again."
    yield (lambda got, _: got >= 1), "A GPU cannot work for longer than the time: synchronise before the clock is read."
    yield work / (work + min(kernel_s, launch_s)), "That is one long kernel: launch `kernels` short ones."
    yield 1 - right, "That is the share for which it is idle."
    yield right / kernels, "That is the work of one kernel: there are `kernels` of them."
    yield kernel_s / (kernel_s + launch_s), "Synchronise after the last launch only: it makes the host wait each time."
    yield work / (work + 7), "Work from before counts: synchronise before you read the clock for the first time."
    for one_less in (longer, launch_s):
        yield work / (took - one_less), "One kernel or launch is not in the time: read the clock before the first."
    yield work / (took + longer), "One kernel too many is in the time."
    yield None, "Divide the work of all kernels by the time from the first launch to the last kernel's end."


@exercise()
def recorded(answer: Callable) -> None:
    """Checks which calls of a step the profiler has recorded that ``answer(step, warmup, steps)`` returns."""
    warmup, steps = drawn((2, 3), lambda random: random.choice(((1, 4), (1, 5), (3, 4), (3, 5))))
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler prints that there is no GPU
    counter = itertools.count()

    def step() -> None:
        with torch.profiler.record_function(f"call {next(counter)}"):
            torch.ones(2).sum()

    with guarded(answer):
        profiler = answer(step, warmup, steps)
    require(hasattr(profiler, "events"), f"return the profiler itself, not {kind(profiler)}.")
    profiled = profiler.events()
    calls, events = next(counter), [(one.name, one.time_range.start, one.time_range.end) for one in profiled]
    ranges = [(begin, end) for name, begin, end in events if name == "my step"]
    recorded = {name: any(a <= begin and end <= b for a, b in ranges) for name, begin, end in events}
    kept, right = [k for k in range(calls) if f"call {k}" in recorded], [*range(warmup, calls)]
    told = "has the profiler a schedule with both lengths, and does profiler.step() end each turn, after the call?"
    require(calls == warmup + steps, f"the step was called {calls} times, not {warmup} + {steps}.")
    require(kept == right, f"of calls 0 to {calls - 1} these were recorded: {kept}, not {right}: {told}")
    lie = sum(recorded[f"call {k}"] for k in kept)
    told = f'of {steps} calls {lie} lie in a range "my step", of which there are {len(ranges)}: put each into one.'
    require(lie == len(ranges) == steps, told)


TIMES: list[Any] = [  # how times may be wrong
    (lambda got, _: min(map(min, got.values())) < 0, "Negative times: take the clock after minus the clock before."),
    (lambda got, _: max(map(max, got.values())) > 100, "Leave them in seconds, as `clock` has them."),
    (lambda got, _: max(map(max, got.values())) < 0.5, "Is only the launch measured? Synchronise after it, too."),
]


def _turns(answer: Callable, names: list[str], rounds: int, warmup: int, slower: float) -> tuple[Any, list[str]]:
    """What ``answer(steps, rounds, warmup, synchronise, clock)`` measures, and the calls that it made, in their order.

    The fake GPU is busy at first, and slow for two rounds. The first step takes `slower` seconds, the second twice as
    many, and so on.
    """
    gpu, calls = FakeGPU(), []
    gpu.launch(7.0)

    def step(name: str, seconds: float) -> None:
        calls.append(name)
        gpu.launch(seconds + (4.0 if calls.count(name) <= 2 else 0.0))

    def clock() -> float:
        calls.append("clock")
        return gpu.clock()

    steps = {name: partial(step, name, place * slower) for place, name in enumerate(names, 1)}
    return answer(steps, rounds=rounds, warmup=warmup, synchronise=gpu.synchronise, clock=clock), calls


@exercise()
def alternate(answer: Callable) -> None:
    """Compares ``answer(steps, rounds, warmup, synchronise, clock)`` with `labkit.measure.timing.alternate`."""
    rounds, warm = drawn((3, 2), lambda random: (random.randrange(4, 7), random.randrange(3, 5)))
    slower = drawn(1.0, lambda random: random.uniform(0.8, 1.1))
    names = drawn(["a", "b", "c"], lambda random: random.sample(["batched", "bf16", "graph", "plain"], 3))
    for steps, warmup in ((names, warm), (names, 0), (names[:1], warm)):
        its, _ = _turns(right_alternate, steps, rounds, warmup, slower)
        with guarded(answer):
            got, calls = _turns(answer, steps, rounds, warmup, slower)
        require_kind(got, f"a dict with the keys {sorted(steps)}")
        order, number = [call for call in calls if call != "clock"], warmup + rounds
        turns = [sorted(order[i : i + len(steps)]) for i in range(0, len(order), len(steps))]
        in_turn = f"take the steps in turn, {' '.join(steps)}, {number} times, each as step() with parentheses."
        seconds = [len(one) if isinstance(one, list) else kind(one) for one in got.values()]
        listed = f"of seconds there are {seconds}, not {rounds} a step: append to its own list, if turn >= warmup."
        require("clock" in calls, "your function never reads the clock it is given: call the argument `clock`.")
        require(turns == [sorted(steps)] * number, f"the order is {' '.join(order) or 'empty'}: {in_turn}")
        require(seconds == [rounds] * len(steps), listed)
        mine, right = ({name: tuple(one[name]) for name in steps} for one in (got, its))
        alone = "Each time is that of one step: synchronise before reading the clock, before the step and after it."
        expect(mine, right, TIMES, alone, f"{len(steps)} steps, warmup {warmup}")


@formula(
    right_amdahl,
    [(0.6, 4.0), (0.9, math.inf), (0.0, 3.0), (0.5, 0.5)],
    lambda random: tuple(most * random.uniform(0.6, 1) for most in next(PARTS)),
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
    yield 1 - share + share * factor, "Times add up, and factors do not: divide the part's time by its factor."
    yield max(1.0, 1 / left), "A factor below 1 makes the part slower, and the whole as well: that counts, too."
    yield None, "Of the time 1, 1 - share stays: divide `share` by `factor` for the rest, also where that gives 0."
