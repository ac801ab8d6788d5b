"""Checks of notebook 12: when is an entry a record, and an entry of one's own before the judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random

import numpy

from labkit.course.check.answers import WrongAnswer, drawn, exercise, require
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL
from labkit.speedrun.judge import Heat, Judge, verdict
from labkit.speedrun.ladder import records

FASTER, DECIDING = 1.3, 2  # times as fast as the baseline; heats that reach the goal, or miss it
LIMIT = 2.0  # CPU seconds for each calibrated second that is allowed: some processors are that much slower


def _heats(seconds: Sequence[float], reached: Sequence[bool]) -> list[Heat]:
    """Heats that took so long, some of them at the goal."""
    ends = {True: GOAL, False: {name: 2 * goal for name, goal in GOAL.items()}}
    return [
        Heat(seed, "rgb", time, time, time, [ends[at_goal]])
        for seed, (time, at_goal) in enumerate(zip(seconds, reached, strict=True))
    ]


def _any_times(random: Random) -> list[tuple[list[float], list[bool], list[float], str]]:
    """Times, what reached the goal, and the record's times, to `is_record`."""
    cases = []
    for _ in range(60):
        record = [random.uniform(9, 11) for _ in range(5)]
        mine = [random.uniform(6, 11) for _ in range(5)]
        reached = [random.random() < 0.85 for _ in range(5)]
        cases.append((mine, reached, record, "Both conditions have to hold: quality, and a gain beyond noise."))
    return cases


@exercise(verdict)
def is_record(answer: Callable[[list[float], list[bool], list[float]], bool]) -> None:
    """Compares ``answer(seconds, reached, record)`` with `labkit.speedrun.verdict`."""
    record, all_five = [10.0, 10.4, 10.2, 10.1, 10.3], [True] * 5
    noise = "The record differs from itself by its longest time less its shortest: a gain has to be larger."
    usual = [
        ([9.0] * 5, all_five, record, "All reached the goal, and the median is far below the record's."),
        ([9.85] * 5, all_five, record, noise),
        ([9.0, 9.1, 9.2, 14.0, 15.0], all_five, record, "The median counts, not the mean: two slow seeds do not hurt."),
        ([9.0] * 5, [False, True, True, True, True], record, "Four of five seeds are enough."),
        ([9.0] * 5, [False, True, False, True, True], record, "Three of five seeds are too few."),
        ([11.0] * 5, all_five, record, "It is slower."),
        ([10.2, 9.6, 9.7, 9.7, 9.7], all_five, record, "The median counts, not the slowest seed."),
    ]
    for seconds, reached, before, hint in drawn(usual, _any_times):
        right = verdict(_heats(seconds, reached), _heats(before, [True] * len(before))).record
        got = answer(list(seconds), list(reached), list(before))
        require(isinstance(got, bool | numpy.bool_), f"True or False is expected, not {got!r}. Is a `return` missing?")
        where = f"seconds {seconds}, reached {reached}, record {before}"
        require(got == right, f"{where}: it should be {right}. {hint}")


@exercise()
def my_entry(answer: str) -> None:
    """Has the judge train an entry, given as its text, with seeds that it draws, until two are at the goal or not.

    Raises:
        WrongAnswer: it broke a rule, stopped with an error, missed the goal, or was not 1.3 times as fast as the
            baseline, the first record on the ladder.
    """
    require(isinstance(answer, str), f"the text of an entry is expected, not {answer!r:.40}.")
    baseline = records()[0]["seconds"]
    allowed = baseline / FASTER
    heats: list[Heat] = []
    draws = Random(os.environ.get("LABKIT_CHECK_SEED"))
    try:
        judge = Judge(limit=LIMIT * allowed)
        while all([heat.reached for heat in heats].count(end) < DECIDING for end in (True, False)):
            heats.append(judge.heat(answer, draws.randrange(2**31)))
            print(heats[-1])
    except LabkitError as error:
        raise WrongAnswer(str(error)) from error
    reached = sum(heat.reached for heat in heats)
    require(
        reached >= DECIDING, f"{reached} of {len(heats)} seeds reached the goal: the curve says when it was nearest."
    )
    seconds = max(heat.seconds for heat in heats)  # not the median: the first could keep weights for the next
    told = f"it takes {seconds:.0f} calibrated seconds, the baseline {baseline:.0f}"
    require(seconds <= allowed, f"{told}: at most {allowed:.0f} are {FASTER} times as fast. What takes longest in it?")
    print(f"{baseline / seconds:.2f} times as fast as the baseline: {told}")
