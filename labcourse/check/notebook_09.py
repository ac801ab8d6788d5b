"""Checks of notebook 09: whether a step is faster, which step to take, and which choices nobody can want."""

from __future__ import annotations

import math
from operator import le, lt
from random import Random
from statistics import median

from pandas import DataFrame

from labcourse.check.formula import Mistakes, formula
from labkit.measure.autotune import pick as right_pick
from labkit.measure.compare import reach, speed_verdict
from labkit.measure.timing import interval, ratios

Seconds = list[float]


def _right_verdict(baseline: Seconds, again: Seconds, step: Seconds) -> str:
    return speed_verdict(1.0, interval(ratios(baseline, step)), interval(ratios(baseline, again)))[0]


def _rounds(n: int, again: float, step: float, disturbed: int = 0, by: float = 2) -> tuple[Seconds, Seconds, Seconds]:
    """Rounds of a machine that slows down, the second baseline and a step that much slower, some rounds disturbed."""
    baseline = [1.0 + 0.1 * i for i in range(n)]
    wobble = [1 + 0.01 * (-1) ** i for i in range(n)]
    steps = [step * one * w for one, w in zip(baseline, wobble, strict=True)]
    steps[:disturbed] = [one * by for one in steps[:disturbed]]
    return baseline, [again * one * w for one, w in zip(baseline, wobble, strict=True)], steps


ROUNDS = [
    *(_rounds(20, *one) for one in ((1.0, 0.7), (1.0, 1.4), (0.9, 0.95), (1.1, 0.95), (0.9, 1.05))),
    # The sixth smallest of 20 ratios decides, and the smallest of 8 or 6; the last two intervals touch the noise.
    *(_rounds(20, 1.0, 0.9, disturbed) for disturbed in (2, 5, 8, 6)),
    *(_rounds(20, 1.0, 1.1, disturbed, 0.5) for disturbed in (5, 6)),
    *(_rounds(8, 1.0, 0.9, 1), _rounds(6, 1.0, 0.9), _rounds(20, 1.0, 0.985)),
    *(([1.0] * 8, [again] * 8, [again] * 8) for again in (0.5, 2.0)),
]


def _other_rounds(random: Random) -> tuple[Seconds, ...]:
    """One of `ROUNDS` in another order and on another machine, to `verdict`."""
    rounds, scale = [*zip(*random.choice(ROUNDS), strict=True)], random.uniform(0.1, 10)
    return tuple([scale * one for one in seconds] for seconds in zip(*random.sample(rounds, len(rounds)), strict=True))


@formula(_right_verdict, ROUNDS, _other_rounds)
def verdict(baseline: Seconds, again: Seconds, step: Seconds) -> Mistakes:
    """Compares ``answer(baseline, again, step)`` with the verdict of `labkit.compare`."""
    of_step, noise = sorted(ratios(baseline, step)), interval(ratios(baseline, again))
    (low, high), far = interval(of_step), reach(*noise)
    # The interval of the numbers 1 to n begins with k itself.
    k = int(interval([float(rank) for rank in range(1, len(of_step) + 1)])[0])
    told = f"The interval goes from {low:.3g} to {high:.3g}, the noise from {1 / far:.3g} to {far:.3g}. Perhaps "
    sides = {"faster": low > noise[1], "slower": high < noise[0]}
    one_sided = next((word for word, holds in sides.items() if holds), "no difference")
    yield (
        one_sided,
        f"{told}you forget that noise reaches as far below 1 as above: far is the larger of high and 1 / low.",
    )
    for between, its_noise, guess in (
        (
            (of_step[k], of_step[-k - 1]),
            noise,
            "your k, or your place of the k-th, is too large, and the interval too narrow",
        ),
        ((of_step[max(k - 2, 0)], of_step[-max(k - 1, 1)]), noise, "your k is too small, and the interval too wide"),
        ((of_step[0], of_step[-1]), noise, "you take the extremes, so that one disturbed round decides"),
        (interval(ratios(sorted(baseline), sorted(step))), noise, "you divide seconds of different rounds"),
        ((1 / high, 1 / low), noise, "your ratios are upside down: baseline / step is above 1 if the step is faster"),
        ((low, high), (1.0, 1.0), "you forget the noise, or one side of it: it reaches as far below 1 as above"),
        ((median(of_step),) * 2, noise, "you take the median alone: the whole interval counts"),
    ):
        yield speed_verdict(1.0, between, its_noise)[0], f"{told}{guess}."
    yield None, f"{told}the rounds are not divided one by one, or an end touches the noise, which is no difference."


def _right_front(table: DataFrame, sign: int = 1, strict: bool = True) -> set[str]:
    """The rows that no other row beats; unless it is `strict`, equal rows beat each other."""
    rows = {str(name): [sign * value for value in values] for name, *values in table.itertuples()}

    def beats(other: str, name: str) -> bool:
        return all(map(le, rows[other], rows[name])) and name != other and not (strict and rows[other] == rows[name])

    return {name for name in rows if not any(beats(other, name) for other in rows)}


CHOICES = [  # the first row is beaten in one column alone, by twins; the next one is best nowhere
    *((6.0, 3.0, 7.0, 5.5), (6.0, 3.0, 7.0, 5.0), (6.0, 3.0, 7.0, 5.0), (5.5, 5.0, 7.5, 6.0)),
    *((5.0, 9.0, 7.0, 9.0), (9.0, 9.0, 6.0, 9.0), (7.0, 4.0, 8.0, 4.0), (9.0, 9.0, 8.0, 9.5)),
    *((4.0, 9.5, 9.0, math.inf), (4.5, 9.5, 9.0, math.inf)),  # of two that never arrive one beats the other
]


def _other_choices(random: Random) -> tuple[DataFrame]:
    """The rows and columns of `CHOICES` in another order and with other scales and names, to `front`."""
    scales = random.sample([0.5, 2.0, 3.0, 7.0], 4)
    choices = [[scale * one for scale, one in zip(scales, row, strict=True)] for row in CHOICES]
    columns = random.sample([*zip(*choices, strict=True)], 4)
    rows = random.sample([*zip(*columns, strict=True)], len(CHOICES))
    return (DataFrame(rows, index=random.sample("ABCDEFGHIJKLMNOP", len(rows)), columns=[*"qrst"]),)


@formula(
    _right_front,
    [
        (DataFrame(CHOICES, index=[*"ABCDEFGHIJ"], columns=["fg", "bg", "changed", "minutes"]),),
        (DataFrame([[5, 1], [5, 1], [6, 1], [4, 2]], index=[*"ABCD"], columns=["fg", "minutes"]),),
    ],
    _other_choices,
)
def front(table: DataFrame) -> Mistakes:
    """Compares ``answer(table)`` with the rows that no other row beats."""
    yield {*map(str, table.index)} - _right_front(table), "Those are the rows that are beaten."
    yield _right_front(table, -1), "That is as if higher were better: lower is better."
    yield _right_front(table, strict=False), "Equal rows do not beat each other: one has to be better somewhere."
    lowest = {str(name) for name, least in (table == table.min()).any(axis=1).items() if least}
    for best in ({str(table[column].idxmin()) for column in table}, lowest):
        yield best, "Those are best in one column: a row may be second in all, and still not beaten by any single one."
    values = {str(name): row for name, *row in table.itertuples()}
    below = {one for one in values if any(all(map(lt, values[two], values[one])) for two in values)}
    yield (
        values.keys() - below,
        "A row is beaten by one that is equal in some columns, too, if it is better in another.",
    )
    yield None, "Compare each row with each other one: which of them is worse nowhere and better somewhere?"


def _table(rows: dict[str, tuple[str, float, float]]) -> DataFrame:
    return DataFrame.from_dict(rows, orient="index", columns=["verdict", "times_faster", "peak_bytes"])


USUAL = {
    "plain": ("baseline", 1.0, 5e9),
    "plain again": ("noise", 1.01, 5e9),
    "no identity": ("not equivalent", 3.0, 1e9),
    "bf16": ("faster", 1.6, 3e9),
    "graph": ("faster", 2.0, 7e9),
    "batched": ("faster", 1.2, 6e9),
    "channels_last": ("no difference", 1.7, 1e9),
    "winograd": ("slower", 0.8, 1e9),
    "compile": ("out of memory", math.nan, math.nan),
}
NO_GAIN = {name: row for name, row in USUAL.items() if row[0] != "faster"}
CASES = [
    *((_table(USUAL), memory_bytes) for memory_bytes in (math.inf, 6e9, 7e9, 2e9)),
    (_table(NO_GAIN), math.inf),
    (_table(NO_GAIN).drop(index=["no identity", "channels_last"]), math.inf),
    (_table(USUAL).assign(peak_bytes=math.nan), 6e9),
    (_table(USUAL | {"graph": ("faster", 2.0, math.nan)}), 6e9),
    (_table(USUAL | {"bf16": ("faster", 1.6, math.nan)}), 2e9),
]


def _other_case(random: Random) -> tuple[DataFrame, float]:
    """One of `CASES` with other sizes and names, the rows after the baseline in another order, to `pick`."""
    (table, memory_bytes), scale = random.choice(CASES), random.uniform(0.5, 2)
    table = table.iloc[[0, *random.sample(range(1, len(table)), len(table) - 1)]]
    table = table.rename(index={name: f"{name} {random.randrange(100)}" for name in table.index})
    return table.assign(peak_bytes=scale * table["peak_bytes"]), scale * memory_bytes


@formula(right_pick, CASES, _other_case)
def pick(table: DataFrame, memory_bytes: float) -> Mistakes:
    """Compares ``answer(table, memory_bytes)`` with `labkit.measure.autotune.pick`."""
    faster = table[table["verdict"] == "faster"]
    fit = faster[~(faster["peak_bytes"] > memory_bytes)]

    def fastest(some: DataFrame) -> str:
        return max(some.index, key=some["times_faster"].get, default=table.index[0])

    for verdict, why in REASONS.items():
        yield (lambda got, _, verdict=verdict: table["verdict"].get(got) == verdict), why
    yield (lambda got, _: got in faster.index.difference(fit.index)), "It holds more than the memory there is."
    yield (lambda _, right: right == table.index[0]), "Nothing that is `faster` fits: return the name of the first row."
    yield fastest(fit[fit["peak_bytes"] != memory_bytes]), "A step that fills the memory exactly fits."
    yield fastest(fit[fit["peak_bytes"].notna()]), "A step that takes unknown memory (NaN) fits."
    first_asked = fastest(faster) if fastest(faster) in fit.index else table.index[0]
    yield first_asked, "Another one is faster and fits: leave out what does not fit, and then take the fastest."
    yield next(iter(fit.index), ""), "That is the first of those that are faster and fit: take the fastest."
    least = next(iter(fit["peak_bytes"].sort_values().index), "")
    yield least, "That one takes the least memory: take the fastest of those that fit."
    yield None, "Of the `faster` rows that fit take the fastest, or the baseline if nothing that is faster fits."


REASONS = {  # of a verdict: why the row is not the one to use
    "no difference": "It cannot be told from noise: its verdict says that it is a guess.",
    "not equivalent": "It computes something else: its verdict says so.",
}
