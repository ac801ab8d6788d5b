"""Two recordings of the same training, compared: the step, its work by kind, and what appeared, vanished or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.dialects import CALLS, OPERATORS, fine_kinds
from labtrace.events.intervals import NOWHERE, Nested, Union, innermost
from labtrace.events.rank import Rank
from labtrace.findings.window import of_steps
from labtrace.tables.gpu import share, temporal_by_step
from labtrace.tables.processor import MOST_SKEWED, stretches, typical_steps, typical_work

SAME = 0.05  # a difference of counts or means up to this share of the larger counts as none
SAME_STEP = 0.01  # and one of steps up to this share
EXPOSED, HIDDEN = "communication, exposed", "communication, hidden"
MOST_OUTSIDE = 0.1  # of the work may be in no operator, if it is compared by operator
ONE_GPU = "Only one of these traces has GPU activity, so their work cannot be compared."
# Columns of `changes` where two recordings have an order, and all columns then
RENAMED = dict(count="count_before", count_other="count_after", us="before_us", us_other="after_us", name="kernel")
COLUMNS = ["before_us", "after_us", "difference_us", "change", "count_before", "count_after"]


class Comparison(NamedTuple):
    """Two recordings, before and after a change.

    Attributes:
        words: the steps before and after, in a sentence, and what could not be compared.
        tables: "steps": of each recording how many steps count, the median of their wall times, its quartiles, their
            mean, and the share of the recording in which the GPU was idle; and the work of a step by "kind",
            communication in two rows, exposed and hidden, by "operator" or, where a recording has no operators, by
            "kernel", and with a GPU by "host call".
    """

    words: str
    tables: dict[str, pandas.DataFrame]


def comparison(ours: Mapping[int, Rank], theirs: Mapping[int, Rank]) -> Comparison:
    """The ranks of two recordings, on average where there are several.

    Raises:
        TraceError: the traces have no rank in common, only one of two has steps, or a GPU's work is missing.
    """
    both = _pairs(ours, theirs)
    ranks, others = zip(*both.values(), strict=True)
    before, after = _spread(ranks), _spread(others)
    words = _in_words(before, after, "A step" if len(ranks[0].steps) else "The recording")
    tables = {"steps": pandas.DataFrame([{"recording": "before", **before}, {"recording": "after", **after}])}
    if any("SIMULATED" in (rank.recording.stamp or {}) for rank in (ranks[0], others[0])):
        words += " SIMULATED."
    if len(both) < max(len(ours), len(theirs)):
        words += f" Only ranks in both are compared: {', '.join(map(str, both))}."
    if ranks[0].on_cpu != others[0].on_cpu:
        return Comparison(f"{words} {ONE_GPU}", tables)

    def work(by: str) -> pandas.DataFrame:
        both = [pandas.concat(_per_step(rank, by) for rank in side) for side in (ranks, others)]
        mean = [side.groupby(level=0)[["count", "us"]].sum() / len(ranks) for side in both]
        return changes(*mean).rename(columns=RENAMED)[[RENAMED.get(by, by), *COLUMNS]]

    tables |= {"kind": work("kind").iloc[:, :4], "operator": work("operator")}
    if not ranks[0].on_cpu:
        tables["host call"] = work("host call")
        words += _exposed(tables["kind"].set_index("kind"), max(before["median_us"], after["median_us"]))
    us = tables["operator"].set_index("operator")[["before_us", "after_us"]]
    if (us[us.index == NOWHERE].sum() > MOST_OUTSIDE * us.sum()).any():
        words += " Much of the work is in no operator, as in a CUDA graph, so kernels are compared."
        tables["kernel"] = work("name")
        del tables["operator"]
    return Comparison(words, tables)


def differences(ours: Mapping[int, Rank], theirs: Mapping[int, Rank], by: str) -> pandas.DataFrame:
    """The table that `labtrace.Trace.diff` explains.

    Two traces of one rank each are compared, whatever their ranks.

    Raises:
        TraceError: the traces have no rank in common, or only one of two has steps or a GPU.
    """
    both = _pairs(ours, theirs)
    if any(one.on_cpu != other.on_cpu for one, other in both.values()):
        raise TraceError(ONE_GPU)
    tables = [changes(*(_per_step(rank, by) for rank in pair)).assign(rank=number) for number, pair in both.items()]
    table = pandas.concat(tables, ignore_index=True)
    return table[["rank", *table.columns.drop("rank")]]


def _pairs(ours: Mapping[int, Rank], theirs: Mapping[int, Rank]) -> dict[int, tuple[Rank, Rank]]:
    """The ranks that are in both recordings."""
    if len(ours) == len(theirs) == 1:
        theirs = dict(zip(ours, theirs.values(), strict=True))
    both = {number: (rank, theirs[number]) for number, rank in ours.items() if number in theirs}
    if not both:
        raise TraceError(f"These traces have no rank in common: {sorted(ours)} and {sorted(theirs)}.")
    for pair in both.values():
        for one, other in (pair, pair[::-1]):
            if one.steps.empty and not other.steps.empty:
                raise TraceError(
                    f"{one.recording.file}: no steps, which {other.recording.file.name} has. Call profiler.step()."
                )
    return both


def _spread(ranks: Sequence[Rank]) -> dict[str, Any]:
    """The row of the table "steps" of `Comparison`."""
    walls = pandas.concat(map(whole_steps, ranks))
    low, median, high = walls.quantile([0.25, 0.5, 0.75])
    numbers = {"steps": len(walls), "median_us": median, "lower_quartile_us": low, "upper_quartile_us": high}
    numbers["mean_us"] = walls.mean()
    if ranks[0].on_cpu:
        return {**numbers, "idle_of_wall": np.nan}
    windows = [(rank, *_window(rank)) for rank in ranks]
    wall = sum(end - begin for _, begin, end in windows)
    busy = sum(rank.busy.covered([begin], [end]).item() for rank, begin, end in windows)
    return {**numbers, "idle_of_wall": 1 - busy / (wall or np.nan)}


def whole_steps(rank: Rank) -> pandas.Series:
    """The wall times of the steps or, if none is marked, of the recording.

    On a GPU a step lasts until the next one's first kernel. The last one does not, so it counts only if it is alone:
    then from its mark on, until host and GPU have done with it.
    """
    walls = step_walls(rank)
    if len(walls) == 1 and not rank.on_cpu:
        return pandas.Series(np.ptp(_window(rank)), walls.index)
    if walls.empty:
        work = stretches(rank) if rank.on_cpu else of_steps(rank)
        return pandas.Series(work["us"].sum() if rank.on_cpu else work["end"].max() - work["begin"].min())
    return walls if rank.on_cpu else walls.head(max(1, len(walls) - 1))


def _window(rank: Rank) -> tuple[float, float]:
    """Begin and end of the step if it is alone, else of all work of the GPU.

    The step begins at its mark or, if the GPU was late with the work of the step before, when that has ended.
    """
    walls, kernels = step_walls(rank), rank.kernels
    if len(walls) != 1:
        return rank.start, rank.stop
    step = rank.steps[rank.steps["step"] == walls.index[0]].iloc[0]
    first = kernels["begin"][kernels["step"] == step["step"]].min()
    before = kernels["end"][kernels["begin"] < first].max()  # both are NaN if there is none
    return float(np.fmin(first, np.fmax(step["begin"], before))), float(max(rank.stop, step["end"]))


def step_walls(rank: Rank) -> pandas.Series:
    """The wall time of each step by its number, as `Trace.temporal` has it or, without a GPU, on the host."""
    if rank.on_cpu or not (rank.kernels["step"] >= 0).any():
        return _steps(rank).set_index("step")["duration"]
    return temporal_by_step(rank).query("part == 'wall'").set_index("step")["us"]


def _steps(rank: Rank) -> pandas.DataFrame:
    """The steps that count on the host: without a GPU those of `Trace.processor`."""
    return typical_steps(rank) if rank.on_cpu else rank.steps


def _in_words(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> str:
    """How long a step, or a recording, took and takes, and how long the GPU waited, from two results of `_spread`."""
    ours, theirs = before["median_us"], after["median_us"]
    scale, unit = (1e3, "ms") if max(ours, theirs) > 1e4 else (1.0, "us")

    def shown(us: float) -> str:
        return f"{us / scale:,.0f}" if us >= 100 * scale else f"{us / scale:.3g}"

    faster, slower = sorted((before, after), key=lambda one: one["median_us"])
    apart = slower["lower_quartile_us"] > faster["upper_quartile_us"]
    if not apart or abs(ours - theirs) <= SAME_STEP * max(ours, theirs):
        found = "the same, within the spread of the steps" if what == "A step" else "the same"
    else:
        found = f"{ours / theirs:.2f} times faster" if theirs < ours else f"{theirs / ours:.2f} times slower"
    text = f"{what} took {shown(ours)} {unit} and takes {shown(theirs)}: {found}"
    idle = [f"{one['idle_of_wall']:.0%}" for one in (before, after) if not np.isnan(one["idle_of_wall"])]
    if len(idle) == 2:
        waits = f"waits {idle[0]} of the time, as before" if idle[0] == idle[1] else ""
        text += f"; the GPU {waits or f'waited {idle[0]} of the time and waits {idle[1]}'}"
    if what == "A step" and min(before["steps"], after["steps"]) == 1:
        text += ". A single step does not tell how much steps vary"
    if any(one["mean_us"] > MOST_SKEWED * one["median_us"] for one in (before, after)):
        means = f"{shown(before['mean_us'])} and {shown(after['mean_us'])} {unit}"
        text += f". These are medians, and some steps take much longer: the means are {means}"
    return f"{text}."


def _exposed(kinds: pandas.DataFrame, step_us: float) -> str:
    """How much communication was exposed and is, in a sentence, or "" if that changed by less than `SAME` of a step."""
    exposed, hidden = kinds.reindex([EXPOSED, HIDDEN]).fillna(0.0).itertuples()
    if abs(exposed.difference_us) < SAME * step_us:
        return ""
    before, after = exposed.before_us / 1e3, exposed.after_us / 1e3
    text = f" Communication was exposed for {before:,.1f} ms a step and is for {after:,.1f}"
    if -hidden.difference_us / exposed.difference_us > 0.5:
        text += f": {'now it is' if after < before else 'before it was'} hidden behind other work"
    return f"{text}."


def changes(ours: pandas.DataFrame, theirs: pandas.DataFrame) -> pandas.DataFrame:
    """The table that `labtrace.Trace.diff` explains, of two tables with a named index and the columns count and us.

    A column operator, the one that launched most of a kernel's work, is kept.
    """
    numbers = ["count", "us"]
    table = ours[numbers].join(theirs[numbers].add_suffix("_other"), how="outer").fillna(0.0)
    table["difference_us"] = table["us_other"] - table["us"]
    often, often_other = table["count"], table["count_other"]
    mean, mean_other = share(table["us"], often), share(table["us_other"], often_other)
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
    return table.loc[order].reset_index()


def _per_step(rank: Rank, by: str) -> pandas.DataFrame:
    """Count and us of the work by name, operator or kind, over the number of steps. By name with the operator.

    By "host call", it is the host's time in calls of CUDA: a wait that is gone shows only there.
    """
    work = _work(rank) if by != "host call" else _calls(rank)
    counted = "call" if by == "operator" else "event"
    table = work.groupby(by).agg(count=(counted, "nunique"), us=("us", "sum")) / max(1, len(_steps(rank)))
    if by == "name":
        largest_first = work.groupby(["name", "operator"])["us"].sum().sort_values(ascending=False).reset_index()
        table["operator"] = largest_first.groupby("name")["operator"].first()
    return table


def _calls(rank: Rank) -> pandas.DataFrame:
    calls = rank.operators[rank.operators["category"].isin(CALLS)]
    calls = calls[innermost(rank.steps, calls["begin"]) >= 0] if len(rank.steps) else calls
    return calls.assign(us=calls["duration"], event=calls.index, **{"host call": calls["name"]})


def _work(rank: Rank) -> pandas.DataFrame:
    """What a GPU or, in a recording without one, the processor did in the steps: name, operator, kind, us, event, call.

    An operator on the processor is in pieces, between which it called others: they have its `event` in common. So have
    the exposed and the hidden part of communication. Kernels that one call of an operator launched have its `call` in
    common.
    """
    if rank.on_cpu:
        pieces = typical_work(rank)
        event = rank.nested_operators.at((pieces["begin"] + pieces["end"]) / 2)
        event = np.where(event < 0, -1 - np.arange(len(event)), event)
        name = pieces["name"].where(pieces["name"] != "", pieces["kind"])
        return pieces.assign(event=event, call=event, name=name, operator=name)
    kernels, others = of_steps(rank), rank.kernels[rank.kernels["kind"] != "communication"]
    operators = rank.operators[rank.operators["category"] == OPERATORS]
    call = Nested(operators).at(kernels["call_begin"])
    call[kernels["sharing"] > 1] = -1  # a graph's, whose operators ran when it was captured
    launchers = np.append(operators["name"].to_numpy(dtype=object), NOWHERE)[call]
    call = np.where(call < 0, -1 - kernels.index, call)
    kinds = fine_kinds(kernels).replace("communication", EXPOSED)
    kernels = kernels.assign(us=kernels["duration"], event=kernels.index, call=call, operator=launchers, kind=kinds)
    sent = kernels[kinds == EXPOSED].assign(kind=HIDDEN)
    sent["us"] = np.round(Union(others["begin"], others["end"]).covered(sent["begin"], sent["end"]), 3)  # nanoseconds
    kernels.loc[sent.index, "us"] -= sent["us"]
    return pandas.concat([kernels, sent[sent["us"] > 0]])
