"""Two recordings of the same training, compared: kernels that appeared, vanished or take longer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas

from labtrace.dialects import OPERATORS
from labtrace.rank import Nested, Rank
from labtrace.reading import TraceError

SAME = 0.05  # a difference of counts or means up to this share of the larger counts as none


def differences(ours: Mapping[int, Rank], theirs: Mapping[int, Rank]) -> pandas.DataFrame:
    """The table that `labtrace.Trace.diff` explains.

    Two traces of one rank each are compared, whatever their ranks.

    Raises:
        TraceError: the traces have no rank in common, or only one of two has steps.
    """
    if len(ours) == len(theirs) == 1:
        theirs = dict(zip(ours, theirs.values(), strict=True))
    both = [number for number in ours if number in theirs]
    if not both:
        raise TraceError(f"These traces have no rank in common: {sorted(ours)} and {sorted(theirs)}.")
    tables = [_of_ranks(ours[number], theirs[number]).assign(rank=number) for number in both]
    table = pandas.concat(tables, ignore_index=True)
    return table[["rank", *table.columns.drop("rank")]]


def _of_ranks(ours: Rank, theirs: Rank) -> pandas.DataFrame:
    for one, other in ((ours, theirs), (theirs, ours)):
        if one.steps.empty and not other.steps.empty:
            raise TraceError(
                f"{one.recording.file}: no steps in this trace, but in {other.recording.file.name}, so times per step "
                "cannot be compared. Call the profiler's step() after each step when you record."
            )
    return changes(_per_step(ours), _per_step(theirs))


def changes(ours: pandas.DataFrame, theirs: pandas.DataFrame) -> pandas.DataFrame:
    """The table that `labtrace.Trace.diff` explains, of two tables with the index name and the columns count and us.

    A column operator, the one that launched most of a kernel's work, is kept.
    """
    numbers = ["count", "us"]
    table = ours[numbers].join(theirs[numbers].add_suffix("_other"), how="outer").fillna(0.0)
    table["difference_us"] = table["us_other"] - table["us"]
    often, often_other = table["count"], table["count_other"]
    mean, mean_other = (
        table[us] / table[count].replace(0.0, np.nan) for us, count in (("us", "count"), ("us_other", "count_other"))
    )
    rules = {
        "appeared": often == 0,
        "vanished": often_other == 0,
        "less often": often_other < (1 - SAME) * often,
        "more often": often < (1 - SAME) * often_other,
        "faster": mean_other < (1 - SAME) * mean,
        "slower": mean < (1 - SAME) * mean_other,
    }
    table["change"] = np.select(list(rules.values()), list(rules), "same")
    if "operator" in ours:
        table.insert(0, "operator", ours["operator"].reindex(table.index).fillna(theirs["operator"]))
    order = table["difference_us"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].rename_axis("name").reset_index()


def _per_step(rank: Rank) -> pandas.DataFrame:
    """Count and us of the kernels by name, over the number of steps, and the operator."""
    steps, kernels = max(1, len(rank.steps)), of_steps(rank)
    operators = rank.operators[rank.operators["category"] == OPERATORS]
    launchers = Nested(operators).names_at(kernels["call_begin"])
    table = kernels.assign(us=kernels["duration"], operator=launchers)
    largest_first = table.groupby(["name", "operator"])["us"].sum().sort_values(ascending=False).reset_index()
    counted = table.groupby("name")["us"].agg(count="size", us="sum") / steps
    return counted.join(largest_first.groupby("name")["operator"].first())


def of_steps(rank: Rank) -> pandas.DataFrame:
    """The kernels that were launched in the recorded steps, or all if none is known to be.

    A kernel whose launch is not in the trace is of a step before the first if it began before its stream ran any of the
    recorded steps' kernels.
    """
    kernels = rank.kernels
    launched = kernels["step"] >= 0
    first = kernels["begin"].where(launched).groupby(kernels["stream"]).transform("min")
    ours = launched | (kernels["call_begin"].isna() & (kernels["begin"] > first))
    return kernels[ours] if ours.any() else kernels
