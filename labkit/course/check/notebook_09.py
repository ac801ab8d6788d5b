"""Check of notebook 09: which step to take."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pandas

from labkit.course.check.answers import ask, cases, drawn, exercise, expect
from labkit.measure.autotune import pick as right_pick


def _any_table(random: Random) -> dict[str, tuple[str, float, float]]:
    """Other rows, under other names, to `pick`. The baseline comes first."""
    verdicts = ("faster", "faster", "no difference", "slower", "not equivalent", "noise")
    rows = {"the baseline": ("baseline", 1.0, random.uniform(3e9, 9e9))}
    for i in range(random.randrange(6, 12)):
        rows[f"step {i}"] = random.choice(verdicts), random.uniform(0.5, 3), random.uniform(2e9, 9e9)
    return rows


@exercise(right_pick)
def pick(answer: Callable[[pandas.DataFrame, float], str]) -> None:
    """Compares ``answer(table, memory_bytes)`` with `labkit.measure.autotune.pick`."""
    usual_rows = {
        "plain": ("baseline", 1.0, 5e9),
        "plain again": ("noise", 1.01, 5e9),
        "no identity": ("not equivalent", 3.0, 4e9),
        "bf16": ("faster", 1.6, 3e9),
        "graph": ("faster", 2.0, 7e9),
        "batched": ("faster", 1.2, 6e9),
        "channels_last": ("no difference", 1.7, 5e9),
        "compile": ("out of memory", math.nan, math.nan),
    }
    rows = drawn(usual_rows, _any_table)
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["verdict", "times_faster", "peak_bytes"])
    usual = [
        (table, math.inf, "Take the fastest whose verdict is `faster`."),
        (table, 6e9, "It holds more than the memory there is."),
        (table, 7e9, "A step that holds just as much as there is fits."),
        (table, 2e9, "Nothing that is faster fits: stay with the baseline."),
        (table.assign(peak_bytes=math.nan), 6e9, "Memory that is not known (NaN) is no reason against a step."),
    ]
    fastest = "The fastest whose verdict is `faster` and whose memory is there, else the baseline."

    def any_choice(random: Random) -> tuple[pandas.DataFrame, float, str]:
        return table.iloc[: random.randrange(1, len(table))], random.uniform(2e9, 9e9), fastest

    for given, memory_bytes, advice in cases(usual, any_choice):
        right, where = right_pick(given, memory_bytes), f"with {memory_bytes:g} bytes"
        expect(
            ask(answer, given, memory_bytes, where=where, if_it_fails=advice),
            right,
            [
                ("no identity", "No identity is fast because it computes something else: its verdict says so."),
                ("channels_last", "channels_last is a guess: it cannot be told from noise, as its verdict says."),
            ],
            f"It should be {right!r}. {advice}",
            where,
        )
