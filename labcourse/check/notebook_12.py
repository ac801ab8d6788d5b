"""Check of notebook 12: an entry of one's own before the judge."""

from __future__ import annotations

import os
from random import Random

from labcourse.check.answers import WrongAnswer, exercise, require
from labcourse.speedrun.judge import Heat, Judge
from labcourse.speedrun.ladder import records
from labtrace.errors import LabkitError

FASTER, DECIDING = 1.3, 2  # times as fast as the baseline; heats that reach the goal, or miss it
LIMIT = 2.0  # CPU seconds for each calibrated second that is allowed: some processors are that much slower


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
