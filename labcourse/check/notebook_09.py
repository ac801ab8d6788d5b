"""Checks of notebook 09: whether a step is faster, which step to take, and which choices nobody can want."""

from __future__ import annotations

import math
from random import Random
from statistics import median

from pandas import DataFrame, Series

from labcourse.check.answers import Mistakes, formula
from labkit.measure.autotune import pick as right_pick
from labkit.measure.compare import speed_verdict
from labkit.measure.timing import interval, ratios

Seconds = list[float]


def _right_verdict(baseline: Seconds, again: Seconds, step: Seconds) -> str:
    return speed_verdict(1.0, interval(ratios(baseline, step)), interval(ratios(baseline, again)))[0]


def _one_sided(between: tuple[float, float], noise: tuple[float, float]) -> str:
    if between[0] > max(1.0, noise[1]):
        return "faster"
    return "slower" if between[1] < min(1.0, noise[0]) else "no difference"


def _rounds(n: int, again: float, step: float, disturbed: int = 0) -> tuple[Seconds, Seconds, Seconds]:
    """Rounds of a machine that slows down, the second baseline and a step that much slower, some rounds disturbed."""
    baseline = [1.0 + 0.1 * i for i in range(n)]
    wobble = [1 + 0.01 * (-1) ** i for i in range(n)]
    steps = [step * one * w for one, w in zip(baseline, wobble, strict=True)]
    steps[:disturbed] = [one * 2 for one in steps[:disturbed]]
    return baseline, [again * one * w for one, w in zip(baseline, wobble, strict=True)], steps


@formula(
    _right_verdict,
    [_rounds(20, *one) for one in ((1.0, 0.7), (1.0, 1.4), (0.9, 0.95), (1.1, 0.95), (0.9, 1.05), (1.0, 0.9, 2))]
    # The sixth smallest of 20 ratios decides, and the smallest of 8; the last step's interval touches the noise.
    + [_rounds(20, 1.0, 0.9, disturbed) for disturbed in (5, 8, 6)]
    + [_rounds(8, 1.0, 0.9, 1), ([1.0] * 8, [0.5] * 8, [0.5] * 8)],
    lambda random: _rounds(
        random.choice((8, 12, 20)), random.uniform(0.9, 1.1), random.uniform(0.8, 1.2), random.randrange(7)
    ),
)
def verdict(baseline: Seconds, again: Seconds, step: Seconds) -> Mistakes:
    """Compares ``answer(baseline, again, step)`` with the verdict of `labkit.compare`."""
    of_step, noise = sorted(ratios(baseline, step)), interval(ratios(baseline, again))
    # The interval of the numbers 1 to n begins with k itself.
    k = int(interval([float(rank) for rank in range(1, len(of_step) + 1)])[0])
    yield speed_verdict(1.0, (of_step[k], of_step[-k - 1]), noise)[0], "Your interval is too narrow: k is too large."
    wider = of_step[max(k - 2, 0)], of_step[-max(k - 1, 1)]
    yield speed_verdict(1.0, wider, noise)[0], "Your interval is too wide: with a larger k, too, both have at most 5 %."
    upside_down = interval(ratios(step, baseline)), interval(ratios(again, baseline))
    yield speed_verdict(1.0, *upside_down)[0], "A step is faster if its seconds are fewer: baseline / step, above 1."
    yield (
        _one_sided(interval(of_step), noise),
        "Either copy of the baseline could be the first: noise reaches as far below 1 as above.",
    )
    yield (
        speed_verdict(1.0, interval(of_step), (1.0, 1.0))[0],
        "The interval of the baseline to itself counts: only above noise a step is faster.",
    )
    yield (
        speed_verdict(1.0, (min(of_step), max(of_step)), noise)[0],
        "Those are the extremes: one disturbed round decides.",
    )
    yield speed_verdict(1.0, (median(of_step),) * 2, noise)[0], "The whole interval counts, not the median alone."
    yield None, "Ratios by round, sorted; k from the coins; then both ends against the noise, on both sides of 1."


def _right_front(table: DataFrame, strict: bool = True) -> set[str]:
    def beaten(row: Series) -> bool:
        other = table.drop(index=row.name)
        return bool(((other <= row).all(axis=1) & ((other < row).any(axis=1) | (not strict))).any())

    return {str(name) for name, row in table.iterrows() if not beaten(row)}


CHOICES = {"light": (6.0, 3.0), "large": (5.0, 9.0), "worse": (7.0, 3.0), "twin": (6.0, 3.0), "middle": (5.5, 5.0)}


@formula(
    _right_front,
    [(DataFrame.from_dict(CHOICES, orient="index", columns=["fg", "minutes"]),)],
    lambda random: (DataFrame([[random.randrange(5) for _ in "123"] for _ in range(9)], index=[*"ABCDEFGHI"]),),
)
def front(table: DataFrame) -> Mistakes:
    """Compares ``answer(table)`` with the rows that no other row beats."""
    everyone = {*table.index}
    yield everyone - _right_front(table), "Those are the rows that are beaten."
    yield _right_front(-table), "Lower is better."
    yield _right_front(table, strict=False), "Equal rows do not beat each other: one has to be better somewhere."
    best = {str(table[column].idxmin()) for column in table}
    yield best, "Those are best in one column: a row may be second in all, and still not beaten by any single one."
    yield None, "Compare each row with each other one: which of them is worse nowhere and better somewhere?"


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
