"""Check of notebook 12: the judge trains the student's entry."""

from __future__ import annotations

import os
from random import Random

from labcourse.check.answers import WrongAnswer, exercise, require
from labcourse.speedrun.ladder import records
from labcourse.speedrun.race_judge import Heat, RaceJudge
from labkit.errors import LabkitError

TIMES_FASTER = 1.3  # than the baseline, at least
DECIDING_HEATS = 2  # that reach the goal, or miss it
CPU_PER_CALIBRATED = 2.0  # CPU seconds for each calibrated second that is allowed: some processors are that much slower


@exercise(again=False)
def my_entry(answer: str) -> None:
    """Has the judge train an entry, given as its text, with seeds that it draws, until two are at the goal or not.

    Raises:
        WrongAnswer: it broke a rule, stopped with an error, missed the goal, or was not 1.3 times as fast as the
            baseline, the first record on the ladder.
    """
    require(isinstance(answer, str), f"the text of an entry is expected, not {answer!r:.40}.")
    baseline = records()[0]["seconds"]
    allowed = baseline / TIMES_FASTER
    draws = Random(int(os.environ.get("LABKIT_CHECK_SEED") or Random().randrange(2**31)))
    judge, heats = RaceJudge(limit=CPU_PER_CALIBRATED * allowed), list[Heat]()
    try:
        while all([heat.reached for heat in heats].count(reached) < DECIDING_HEATS for reached in (True, False)):
            heats.append(judge.heat(answer, draws.randrange(2**31)))
            print(heats[-1])
    except LabkitError as error:  # the entry broke a rule, or stopped with an error
        what, *lines = str(error).splitlines()
        raise WrongAnswer(f"{what} {' '.join(lines[-3:])[-200:]}".strip()) from error
    reached = sum(heat.reached for heat in heats)
    nearest = f"{reached} of {len(heats)} seeds reached the goal: the curve says when it was nearest."
    require(reached >= DECIDING_HEATS, nearest)
    seconds = max(heat.seconds for heat in heats)  # not the median: the first could keep weights for the next
    told = f"it takes {seconds:.1f} calibrated seconds, the baseline {baseline:.1f}"
    too_slow = f"{told}: at most {allowed:.1f} are {TIMES_FASTER} times as fast. What takes longest in it?"
    require(seconds <= allowed, too_slow)
    print(f"{baseline / seconds:.2f} times as fast as the baseline: {told}")
