"""The views of a trace: each draws one table of `labkit.Trace`, of one recording or of several side by side.

A trace of several ranks is drawn rank by rank. Errors of a table are errors of its view: a trace recorded on a CPU has
only the views "ranges", "operators" and "communication".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.errors import check_known
from labkit.show.communication import communication
from labkit.show.hta import hta
from labkit.show.recordings import Looks, Traces, bars, each_rank, finish, joined, named, percent, repeated
from labkit.show.style import (
    HOST,
    KERNEL,
    KINDS,
    LINES,
    PATTERNS,
    UNUSED,
    WALL,
    escaped,
    range_look,
    shortened,
    time_unit,
)
from labkit.show.timeline import queue, timeline
from labkit.show.verdict import achieved, path, remedies, summary
from labkit.trace import Trace
from labkit.traces.rank import NOWHERE

PARTS: Looks = {part: (part, colour, "") for part, colour in {"idle": UNUSED, **KINDS}.items()}
CAUSES: Looks = {
    "host_wait": ("waits for the host (host_wait)", HOST, "/"),
    "kernel_wait": ("pauses between kernels (kernel_wait)", UNUSED, ""),
    "other": ("waits for something else (other)", "#DDDDDD", "x"),
    "unknown": ("not known (unknown)", "#FFFFFF", "."),
}
UNKNOWN = "cannot be known, as no launch is in the trace"
SHARES: Looks = {  # of launches, and of memory operations
    "share_of_kernels": ("share of the kernels", UNUSED, ""),
    "share_of_gpu_time": ("share of the GPU time (sum of durations)", KERNEL, ""),
    "share_of_wall": ("share of the wall time in which any of them ran", WALL, ""),
    "count": ("share of their number", UNUSED, ""),
    "total_us": ("share of their time", KERNEL, ""),
}
HOSTS = {"operator": UNUSED, "CUDA call": HOST}
STREAMS = (UNUSED, KERNEL, "#2E8BC9", "#0F6CA6", "#0B4F7D")  # 0, 1, 2, ... busy streams: the more, the darker
OTHER_RANGES = (UNUSED, *LINES)  # of ranges that are not a player's
LARGEST_GAPS, TOP_KERNELS, TOP_OPERATORS = 10, 10, 12  # of each rank, and over all recordings


def trace(traces: Traces, view: str = "temporal", **settings: Any) -> go.Figure:
    """A figure of one trace, or of several side by side.

    Args:
        traces: a trace, or traces by name, as in ``{"baseline": labkit.Trace(path)}``. In the place of a trace may be
            the path of one or of a folder with one of each rank, or a `TraceAnalysis` of HTA's.
        view: "temporal", "summary", "remedies", "steps", "idle", "gaps", "kinds", "kernels", "memory", "launches",
            "queue", "streams", "timeline", "communication", "ranges", "operators", "path" (the critical one),
            "achieved" or "hta".
        settings: of the view. "launches" takes `runtime_cutoff` and `delay_cutoff`, in microseconds. "streams" takes
            `within`, one of labkit's ranges. "timeline" needs `begin_us` and `end_us`, and "hta" takes `table`. See
            the function of the view's name in `labkit.show`'s modules.

    Raises:
        LabkitError: there is no such view.
        TraceError: the trace does not have the events that the view needs, such as GPU activity.
    """
    check_known("view", view, VIEWS)
    return VIEWS[view][1](named(traces), **settings)


def temporal(traces: Traces) -> go.Figure:
    """The wall time divided into idle, compute, memory and communication."""
    table = joined(traces, Trace.temporal)
    figure = _shares_of_wall(table, "part", PARTS)
    figure.add_vline(x=1, line=dict(color=WALL, dash="dash", width=1))
    most = table[table["part"].isin(list(PARTS))].groupby("recording")["share_of_wall"].sum().max()
    note = "Beyond 100%: kinds that ran at the same time" if most > 1.001 else ""
    title = f"share of the wall time. {note}".rstrip(". ")
    figure.update_xaxes(title=title, tickformat=".0%", range=[0, max(1.02, most)])
    return finish(figure, "Where the wall time of the GPU went", traces, table, note)


def steps(traces: Traces) -> go.Figure:
    """Idle, compute, memory and communication of each step, from its first GPU activity to that of the next step.

    A step that differs from the others stands out, and should not be taken for a typical one.
    """
    table = joined(traces, lambda trace: trace.temporal(by="step"))
    unit_us, unit = time_unit(table["us"].max())
    drawn = table.assign(value=table["us"] / unit_us, place=table["step"].astype(str), series=table["part"])
    drawn["panel"] = table["recording"]
    parts, walls = drawn[drawn["part"].isin(list(PARTS))], drawn[drawn["part"] == "wall"]
    overlap = (parts.groupby(["recording", "step"])["share_of_wall"].sum() > 1.001).any()
    note = "Bars beyond the wall time: kinds that ran at the same time" if overlap else ""
    figure = bars(parts, PARTS, f"{unit}. {note}".rstrip(". "))
    for number, (_, rows) in enumerate(walls.groupby("panel", sort=False), start=1):
        figure.add_scatter(
            **dict(x=rows["value"], y=rows["place"], mode="markers", row=number, col=1),
            **dict(name="wall time", legendgroup="wall", showlegend=number == 1),
            marker=dict(symbol="line-ns", size=10, line=dict(color=WALL, width=2)),
            hovertemplate=f"step %{{y}}: wall time %{{x:,.1f}} {unit}<extra></extra>",
        )
    figure.update_yaxes(title="step")
    return finish(figure, "Where the time of each step went on the GPU", traces, table, note)


def idle(traces: Traces) -> go.Figure:
    """Idle time of the whole device, when no stream was busy, by cause."""
    table = joined(traces, Trace.idle)
    table = table[table["scope"] == "device"].drop(columns="scope")
    figure = _shares_of_wall(table, "cause", CAUSES)
    return finish(figure, "What the GPU waited for while no stream was busy", traces, table)


def gaps(traces: Traces) -> go.Figure:
    """The largest times at which no stream was busy, labelled with what the host spent most of each with."""
    table = joined(traces, lambda trace: trace.gaps(LARGEST_GAPS))
    everything = joined(traces, Trace.idle).query("scope == 'device'").groupby("recording")["us"].sum()
    notes = {}
    for name in each_rank(traces):
        us = table["us"][table["recording"] == name]
        told = f"{us.sum():,.1f} µs, {percent(us.sum() / (everything[name] or np.nan))} of the idle time"
        notes[name] = f"the largest {len(us)}, {told}" if len(us) else "never idle"
    number = (table.groupby("recording").cumcount() + 1).astype(str)
    drawn = table.assign(value=table["us"], series=table["cause"], panel=table["recording"])
    drawn["place"] = number + ". " + pandas.Series(map(_filler, table.itertuples()), dtype=object)
    figure = bars(drawn, CAUSES, "length of the gap, microseconds", notes=notes)
    return finish(figure, "The largest gaps, and what the host did in most of each", traces, table, notes)


def kinds(traces: Traces) -> go.Figure:
    """Kernels and memory operations by kind: the sum of their durations, and how many there were."""
    table = joined(traces, lambda trace: trace.kernels(by="kind"))
    values = {"sum of durations, milliseconds": table["total_us"] / 1e3, "how many": table["count"]}
    figure = bars(repeated(table.assign(series=table["kind"]), "panel", values), PARTS, shared=False)
    return finish(figure, "Kernels and memory operations by kind", traces, table)


def kernels(traces: Traces) -> go.Figure:
    """The kernels and memory operations that took most time, all with the same name together."""
    table = joined(traces, Trace.kernels).assign(ms=lambda table: table["total_us"] / 1e3)
    unit = "sum of durations, milliseconds"
    return _ranking(table, traces, TOP_KERNELS, KINDS, "Kernels that took most time", unit)


def memory(traces: Traces) -> go.Figure:
    """Copies and memsets by operation: share of their number beside share of their time.

    Many memory operations may take little of the busy time. Their share of it stands above each panel.
    """
    table = joined(traces, lambda trace: trace.kernels(by="memory"))
    notes = {name: "no memory operations" for name in each_rank(traces)}
    for name, rows in table.groupby("recording"):
        count, us, share = rows[["count", "total_us", "share_of_busy"]].sum(min_count=1)
        notes[name] = f"{count:,.0f} memory operations, {us:,.1f} µs, {percent(share)} of the busy time"
    place = table["operation"].where(~table["pageable"].astype(bool), table["operation"] + ", pageable")
    of_recording = table.groupby("recording")
    values = {column: table[column] / of_recording[column].transform("sum") for column in ("count", "total_us")}
    drawn = repeated(table.assign(place=place, panel=table["recording"]), "series", values)
    figure = _shares_beside_one_another(drawn, "share of the memory operations", notes)
    title = "Copies and memsets: share of their number beside share of their time"
    return finish(figure, title, traces, table, notes)


def launches(traces: Traces, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> go.Figure:
    """How many kernels waited or were launched slowly, beside how much time they took: many may take hardly any time.

    The cutoffs, in microseconds, are those of `labkit.Trace.launches`. A kernel may be in several rows.
    """
    table = joined(traces, lambda trace: trace.launches(runtime_cutoff, delay_cutoff))
    place = table["what"].str.replace(" us", " µs").str.replace(">", "over")
    values = {share: table[share] for share in ("share_of_kernels", "share_of_gpu_time", "share_of_wall")}
    drawn = repeated(table.assign(place=place, panel=table["recording"]), "series", values)
    notes = dict.fromkeys(each_rank(traces), "") | dict.fromkeys(table["recording"][table["kernels"].isna()], UNKNOWN)
    figure = _shares_beside_one_another(drawn, "share", notes)
    return finish(figure, "Launches: share of the kernels beside share of the time", traces, table, notes)


def streams(traces: Traces, within: str = "all") -> go.Figure:
    """How many streams were busy at the same time, and the union of all kernels beside the sum of their durations.

    Args:
        traces: a trace, or traces by name.
        within: one of labkit's ranges, to count only the kernels launched in it, or "all" for the whole trace.
    """
    table = joined(traces, Trace.concurrency)
    check_known("within", within, table["range"].unique())
    table = table[table["range"] == within]
    busy = table["busy_streams"].astype(str)
    levels = table.assign(value=table["share_of_wall"], panel="share of the wall time", series=busy)
    looks = {str(n): (_busy(n), STREAMS[min(n, 4)], "") for n in range(table["busy_streams"].max() + 1)}
    looks |= {"sum_us": ("sum of durations", KERNEL, "/"), "union_us": ("union of all kernels", WALL, "")}
    first = table.drop_duplicates("recording")
    totals = repeated(first, "series", {column: first[column] / 1e3 for column in ("sum_us", "union_us")})
    totals = totals.sort_index(kind="stable").assign(panel="milliseconds")  # both of a recording, one below the other
    both = pandas.concat([levels, totals])
    of_which = both["series"].map({"sum_us": ", sum", "union_us": ", union"}).fillna("")
    figure = bars(both.assign(place=both["recording"].map(escaped) + of_which), looks, shared=False)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02], row=1, col=1)
    where = "" if within == "all" else f" in {within}"
    title = f"Streams busy at the same time{where}, and the union beside the sum of all kernels"
    return finish(figure, title, traces, table)


def ranges(traces: Traces) -> go.Figure:
    """Time on the host in labkit's ranges, on average of a step. Works for a CPU's traces, too.

    On a GPU this is the time to launch the work of a range, not to do it. A range within another counts in both.
    """
    table = joined(traces, Trace.ranges)
    order = list(each_rank(traces))
    without = [name for name in order if name not in set(table["recording"])]
    table = pandas.concat([table, pandas.DataFrame({"recording": without, "range": NOWHERE})])
    table = table.sort_values("recording", key=lambda names: names.map(order.index), kind="stable")
    remark = table["recording"].isin(without).map({True: "<br>(no range of labkit)", False: ""})
    place = table["recording"].map(escaped) + remark
    drawn = table.assign(value=table["us_per_step"] / 1e3, series=table["range"], place=place)
    others = cycle(OTHER_RANGES)
    looks = {}
    for name in table["range"].unique():
        colour, pattern = range_look(name)
        looks[name] = escaped(name), next(others) if colour == UNUSED else colour, pattern
    figure = bars(drawn, looks, "milliseconds a step, on the host")
    return finish(figure, "Time of the host by range, of a step on average", traces, table)


def operators(traces: Traces) -> go.Figure:
    """The operators and CUDA calls in which the host spent most time of its own. Works for a CPU's traces, too."""
    table = joined(traces, Trace.operators).assign(ms=lambda table: table["self_us"] / 1e3)
    unit = "own time, milliseconds"
    return _ranking(table, traces, TOP_OPERATORS, HOSTS, "Operators by their own time on the host", unit)


def _shares_of_wall(table: pandas.DataFrame, series: str, looks: Looks) -> go.Figure:
    """Shares of the wall time, stacked: a bar for each recording, made of the values of the column `series`."""
    drawn = table.assign(value=table["share_of_wall"], series=table[series])
    return bars(drawn, looks, "share of the wall time").update_xaxes(tickformat=".1%")


def _shares_beside_one_another(drawn: pandas.DataFrame, unit: str, notes: Mapping[str, str]) -> go.Figure:
    """A panel for each recording, and in it bars from 0 to 100%, a colour for each share."""
    figure = bars(drawn, SHARES, unit, beside="series", notes=notes)
    return figure.update_xaxes(tickformat=".0%", range=[0, 1.02])


def _ranking(
    table: pandas.DataFrame, traces: Traces, top: int, colours: Mapping[str, str], title: str, unit: str
) -> go.Figure:
    """The `top` names with most `ms` over all recordings, which hatching tells apart, coloured by `kind`."""
    names = list(table.groupby("name")["ms"].sum().nlargest(top).index)
    recordings = table["recording"].unique()
    table = table[table["name"].isin(names)].sort_values(
        "name", key=lambda column: column.map(names.index), kind="stable"
    )
    looks = {
        f"{recording}: {kind}": (f"{escaped(recording)}: {kind}" if len(recordings) > 1 else kind, colour, pattern)
        for recording, pattern in zip(recordings, cycle(PATTERNS), strict=False)
        for kind, colour in colours.items()
    }
    place = [f"{names.index(name) + 1}. {escaped(shortened(name))}" for name in table["name"]]
    drawn = table.assign(value=table["ms"], place=place, series=table["recording"] + ": " + table["kind"])
    figure = bars(drawn, looks, unit, beside="recording")
    return finish(figure, f"{title}: the first {len(names)}", traces, table)


def _filler(gap: Any) -> str:
    """What filled most of a gap on the launching thread, and the range around it if there is one."""
    filler = "nothing that was recorded" if gap.filled_by == NOWHERE else escaped(shortened(gap.filled_by, 36))
    return filler if gap.range_at_end in (NOWHERE, gap.filled_by) else f"{filler}<br>in {escaped(gap.range_at_end)}"


def _busy(number: int) -> str:
    return f"{number} stream{'s' * (number != 1)} busy"


# Each view's name, a few words for a menu, and its function.
VIEWS: dict[str, tuple[str, Callable[..., go.Figure]]] = {
    "temporal": ("where the time went", temporal),
    "summary": ("what bounds it", summary),
    "remedies": ("what each cause costs", remedies),
    "steps": ("step by step", steps),
    "idle": ("idle time by cause", idle),
    "gaps": ("largest gaps", gaps),
    "kinds": ("kinds of kernels", kinds),
    "kernels": ("kernels that took most", kernels),
    "memory": ("copies and memsets", memory),
    "launches": ("launches", launches),
    "queue": ("launch queue", queue),
    "streams": ("streams busy together", streams),
    "timeline": ("timeline", timeline),
    "communication": ("communication between ranks", communication),
    "ranges": ("ranges on the host", ranges),
    "operators": ("operators on the host", operators),
    "path": ("critical path", path),
    "achieved": ("rates by shapes", achieved),
    "hta": ("HTA's own tables", hta),
}
