"""Check of notebook 09: which step to take."""

from __future__ import annotations

import math
from random import Random

from pandas import DataFrame

from labcourse.check.answers import Mistakes, formula
from labkit.measure.autotune import pick as right_pick


def _table(rows: dict[str, tuple[str, float, float]]) -> DataFrame:
    return DataFrame.from_dict(rows, orient="index", columns=["verdict", "times_faster", "peak_bytes"])


def _any_choice(random: Random) -> tuple[DataFrame, float]:
    """Other rows, of which the baseline comes first, and bytes of memory, to `pick`."""
    verdicts = ("faster", "faster", "no difference", "slower", "not equivalent", "noise")
    rows = {"the baseline": ("baseline", 1.0, random.uniform(3e9, 9e9))}
    for i in range(random.randrange(12)):
        rows[f"step {i}"] = random.choice(verdicts), random.uniform(0.5, 3), random.uniform(2e9, 9e9)
    return _table(rows), random.uniform(2e9, 9e9)


USUAL = {
    "plain": ("baseline", 1.0, 5e9),
    "plain again": ("noise", 1.01, 5e9),
    "no identity": ("not equivalent", 3.0, 4e9),
    "bf16": ("faster", 1.6, 3e9),
    "graph": ("faster", 2.0, 7e9),
    "batched": ("faster", 1.2, 6e9),
    "channels_last": ("no difference", 1.7, 5e9),
    "compile": ("out of memory", math.nan, math.nan),
}


@formula(
    right_pick,
    [
        *((_table(USUAL), memory_bytes) for memory_bytes in (math.inf, 6e9, 7e9, 2e9)),
        (_table(USUAL).assign(peak_bytes=math.nan), 6e9),
    ],
    _any_choice,
)
def pick(table: DataFrame, memory_bytes: float) -> Mistakes:
    """Compares ``answer(table, memory_bytes)`` with `labkit.measure.autotune.pick`."""
    known = table[(table["peak_bytes"] <= memory_bytes) | (table["verdict"] == "baseline")]
    guessed = table.replace({"verdict": {"no difference": "faster"}})
    yield right_pick(table, math.inf), "It holds more than the memory there is."
    yield right_pick(known, memory_bytes), "Memory that is not known (NaN, as on a CPU) is no reason against a step."
    yield right_pick(guessed, memory_bytes), "It cannot be told from noise: its verdict says that it is a guess."
    yield table["times_faster"].idxmax(), "It is fast because it computes something else: its verdict says so."
    yield None, "Take the fastest whose verdict is `faster`; if nothing that is faster fits, stay with the baseline."
