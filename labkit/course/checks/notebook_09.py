"""Checks of notebook 09: a verdict on a ratio, and which step to take."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas

from labkit.course.checks.answers import passed, require
from labkit.measure.autotune import pick as right_pick
from labkit.measure.compare import speed_verdict as right_speed_verdict

WORDS = ("faster", "slower", "no difference")


def speed_verdict(answer: Callable[[float, tuple[float, float], tuple[float, float]], str]) -> None:
    """Holds ``answer(times, between, noise)`` to the word of `labkit.measure.compare.speed_verdict`."""
    cases = [
        (1.5, (1.4, 1.6), (0.98, 1.02), "the whole interval lies above the noise."),
        (0.7, (0.65, 0.75), (0.98, 1.02), "the whole interval lies below the noise."),
        (1.1, (0.9, 1.4), (0.98, 1.02), "the interval holds 1: it may as well be slower."),
        (1.03, (1.01, 1.05), (0.95, 1.06), "the baseline against itself differs by as much."),
        (0.97, (0.95, 0.99), (0.94, 1.03), "the baseline against itself differs by as much."),
        (1.02, (0.99, 1.04), (1.01, 1.03), "the interval holds 1, wherever the noise lies."),
        (1.03, (1.02, 1.05), (0.9, 0.95), "the whole interval lies above 1, and above the noise, which lies below."),
        (1.03, (1.01, 1.05), (1.08, 1.15), "the interval does not lie above the noise, but below it."),
        (0.98, (0.97, 0.99), (0.9, 0.95), "the interval does not lie below the noise, but above it."),
        (1.03, (1.02, 1.05), (0.98, 1.02), "the interval touches the noise."),
        (0.97, (0.95, 0.98), (0.98, 1.02), "the interval touches the noise."),
    ]
    for times, between, noise, hint in cases:
        got, (right, _) = answer(times, between, noise), right_speed_verdict(times, between, noise)
        require(isinstance(got, str), f"a word is expected, not {type(got).__name__}. Is a `return` missing?")
        require(got in WORDS, f"{got!r} is none of the words: they are {', '.join(WORDS)}.")
        require(
            got == right,
            f"{times} times faster, between {between[0]} and {between[1]}, noise between {noise[0]} and {noise[1]}: "
            f"your answer is {got!r}, but {hint}",
        )
    passed("speed_verdict")


def pick(answer: Callable[[pandas.DataFrame, float], str]) -> None:
    """Holds ``answer(table, memory_bytes)`` to `labkit.measure.autotune.pick`."""
    rows = {
        "plain": ("baseline", 1.0, 5e9),
        "plain again": ("noise", 1.01, 5e9),
        "no identity": ("not equivalent", 3.0, 4e9),
        "bf16": ("faster", 1.6, 3e9),
        "graph": ("faster", 2.0, 7e9),
        "batched": ("faster", 1.2, 6e9),
        "channels_last": ("no difference", 1.7, 5e9),
        "streams": ("inactive", math.nan, math.nan),
        "compile": ("out of memory", math.nan, math.nan),
    }
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["verdict", "times_faster", "peak_bytes"])
    unknown = table.assign(peak_bytes=math.nan)
    hopeless = table.loc[["plain", "plain again", "no identity", "channels_last"]]
    cases = [
        (table, math.inf, "take the fastest whose verdict is `faster`."),
        (table, 6e9, "it holds more than the memory there is."),
        (table, 7e9, "a step that holds just as much as there is fits."),
        (table, 2e9, "nothing that is faster fits: stay with the baseline."),
        (hopeless, math.inf, "nothing is faster and computes the same: stay with the baseline."),
        (unknown, 6e9, "memory that is not known (NaN, as on a CPU) is no reason against a step."),
    ]
    for given, memory_bytes, hint in cases:
        try:
            got = answer(given.copy(), memory_bytes)
        except (ValueError, IndexError) as error:
            require(False, f"your function fails ({error}): {hint}")
        right = right_pick(given, memory_bytes)
        require(isinstance(got, str), f"a name is expected, not {type(got).__name__}. Is a `return` missing?")
        require(got != "no identity", "no identity is fast because it computes something else: its verdict says so.")
        require(
            got != "channels_last", "channels_last is a guess: it cannot be told from noise, so its verdict is no gain."
        )
        require(got == right, f"with {memory_bytes:g} bytes your answer is {got!r}, it should be {right!r}: {hint}")
    passed("pick")
