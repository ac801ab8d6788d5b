"""The views of a trace: each draws one table of `labkit.Trace`, of one recording or of several side by side.

A trace of several ranks is drawn rank by rank. Errors of a table are errors of its view: a trace recorded on a CPU has
only the views "ranges" and "operators".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.errors import check_known
from labkit.show.recordings import Looks, Traces, bars, each_rank, finish, joined, percent, readable
from labkit.show.style import CLEAR, FAINT, HOST, KERNEL, KINDS, UNUSED, WALL, escaped, panels, range_look, shortened
from labkit.show.timeline import timeline
from labkit.traces.rank import NOWHERE
from labkit.traces.trace import Trace

PARTS: Looks = {part: (part, colour, "") for part, colour in {"idle": UNUSED, **KINDS}.items()}
CAUSES: Looks = {
    "host_wait": ("waits for the host (host_wait)", HOST, "/"),
    "kernel_wait": ("pauses between kernels (kernel_wait)", UNUSED, ""),
    "other": ("waits for something else (other)", "#DDDDDD", "x"),
    "unknown": ("not known (unknown)", "#FFFFFF", "."),
}
LAUNCHED: Looks = {
    "share_of_kernels": ("share of the kernels", UNUSED, ""),
    "share_of_gpu_time": ("share of the GPU time (sum of durations)", KERNEL, ""),
    "share_of_wall": ("share of the wall time in which any of them ran", WALL, ""),
}
MEMORY: Looks = {"count": ("share of their number", UNUSED, ""), "total_us": ("share of their time", KERNEL, "")}
HOSTS = {"operator": UNUSED, "CUDA call": HOST}
STREAMS = (UNUSED, KERNEL, "#2E8BC9", "#0F6CA6", "#0B4F7D")  # 0, 1, 2, ... busy streams: the more, the darker
PATTERNS = ("", "/", ".", "x", "-", "+")  # of recordings, where colours have another meaning
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")  # of recordings, if they are lines
LARGEST_GAPS, TOP_KERNELS, TOP_OPERATORS = 10, 10, 12  # of each rank, and over all recordings
BINS_PER_DECADE = 8
QUEUE_POINTS = 2000
UNKNOWN = "cannot be known, as no launch is in the trace"


def trace(traces: Traces, view: str = "temporal", **settings: Any) -> go.Figure:
    """A figure of one trace, or of several side by side.

    Args:
        traces: a trace, or traces by name, as in ``{"baseline": labkit.Trace(path)}``.
        view: "temporal", "summary", "steps", "idle", "gaps", "kinds", "kernels", "memory", "launches", "delays",
            "queue", "streams", "timeline", "ranges" or "operators".
        settings: of the view. "launches" takes `runtime_cutoff` and `delay_cutoff`, "delays" `delay_cutoff`, all in
            microseconds; "streams" takes `within`, one of labkit's ranges; and "timeline" needs `begin_us` and
            `end_us` and takes `rank`. See the function of that name in `labkit.show.trace_views`.

    Raises:
        LabkitError: there is no such view.
        TraceError: the trace does not have the events that the view needs, such as GPU activity.
    """
    check_known("view", view, VIEWS)
    return VIEWS[view][1](traces, **settings)


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
    drawn = table.assign(value=table["us"], place=table["step"].astype(str), series=table["part"])
    drawn["panel"] = table["recording"]
    parts = drawn[drawn["part"].isin(list(PARTS))]
    overlap = (parts.groupby(["recording", "step"])["share_of_wall"].sum() > 1.001).any()
    note = "Bars beyond the wall time: kinds that ran at the same time" if overlap else ""
    figure = bars(parts, PARTS, f"microseconds. {note}".rstrip(". "))
    for number, (_, walls) in enumerate(drawn[drawn["part"] == "wall"].groupby("panel", sort=False), start=1):
        figure.add_scatter(
            **dict(x=walls["us"], y=walls["place"], mode="markers", row=number, col=1),
            **dict(name="wall time", legendgroup="wall", showlegend=number == 1),
            marker=dict(symbol="line-ns", size=10, line=dict(color=WALL, width=2)),
            hovertemplate="step %{y}: wall time %{x:,.1f} µs<extra></extra>",
        )
    figure.update_yaxes(title="step")
    return finish(figure, "Where the time of each step went on the GPU", traces, table, note)


def idle(traces: Traces) -> go.Figure:
    """Idle time of the whole device, when no stream was busy, by cause."""
    table = joined(traces, Trace.idle)
    table = table[table["scope"] == "device"].drop(columns="scope")
    return finish(
        _shares_of_wall(table, "cause", CAUSES), "What the GPU waited for while no stream was busy", traces, table
    )


def gaps(traces: Traces) -> go.Figure:
    """The largest times at which no stream was busy, labelled with the host's operator and range at their end."""
    table = joined(traces, lambda trace: trace.gaps(LARGEST_GAPS))
    everything = joined(traces, Trace.idle).query("scope == 'device'").groupby("recording")["us"].sum()
    notes = {}
    for name in each_rank(traces):
        us = table["us"][table["recording"] == name]
        share = f"{us.sum():,.1f} µs, {percent(us.sum() / everything[name])} of the idle time" if len(us) else ""
        notes[name] = f"the largest {len(us)}, {share}" if share else "never idle"
    number = table.groupby("recording").cumcount() + 1
    where = [_host_at_end(gap) for gap in table.itertuples()]
    drawn = table.assign(value=table["us"], series=table["cause"], panel=table["recording"])
    drawn["place"] = [f"{position}. {text}" for position, text in zip(number, where, strict=True)]
    figure = bars(drawn, CAUSES, "length of the gap, microseconds", notes=notes)
    note = "; ".join(f"{name}: {text}" for name, text in notes.items())
    return finish(figure, "The largest gaps, and where the host was when they ended", traces, table, note)


def kinds(traces: Traces) -> go.Figure:
    """Kernels and memory operations by kind: the sum of their durations, and how many there were."""
    table = joined(traces, lambda trace: trace.kernels(by="kind"))
    columns = {"sum of durations, milliseconds": table["total_us"] / 1e3, "how many": table["count"]}
    place = table["recording"].map(escaped)
    drawn = [table.assign(value=of, panel=panel, place=place, series=table["kind"]) for panel, of in columns.items()]
    figure = bars(pandas.concat(drawn), PARTS, shared=False)
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
    drawn = []
    for column in MEMORY:
        of_all = table[column] / table.groupby("recording")[column].transform("sum").replace(0, np.nan)
        drawn.append(table.assign(value=of_all, series=column, place=place, panel=table["recording"]))
    unit = "share of the memory operations"
    figure = bars(pandas.concat(drawn), MEMORY, unit, beside="series", notes=notes)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    note = "; ".join(f"{name}: {text}" for name, text in notes.items())
    return finish(figure, "Copies and memsets: share of their number beside share of their time", traces, table, note)


def launches(traces: Traces, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> go.Figure:
    """How many kernels waited or were launched slowly, beside how much time they took: many may take hardly any time.

    The cutoffs, in microseconds, are those of `labkit.Trace.launches`. A kernel may be in several rows.
    """
    table = joined(traces, lambda trace: trace.launches(runtime_cutoff, delay_cutoff))
    place = table["what"].str.replace(" us", " µs").str.replace(">", "over")
    shares = [
        table.assign(value=table[share], series=share, place=place, panel=table["recording"]) for share in LAUNCHED
    ]
    missing = table.groupby("recording", sort=False)["kernels"].apply(lambda kernels: kernels.isna().any())
    notes = {name: UNKNOWN if unknown else "" for name, unknown in missing.items()}
    figure = bars(pandas.concat(shares), LAUNCHED, "share", beside="series", notes=notes)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    note = "; ".join(f"{name}: {text}" for name, text in notes.items() if text)
    return finish(figure, "Launches: share of the kernels beside share of the time", traces, table, note)


def delays(traces: Traces, delay_cutoff: float = 100.0) -> go.Figure:
    """How long kernels waited between launch and start: the distribution, and the same weighted by their durations.

    "launches" counts the delays beyond the cutoff, and this view shows how far beyond they are. Delays of a few
    microseconds belong to kernels that the GPU waited for, and delays of milliseconds to kernels in a full queue.
    Kernels whose launch is not in the trace are left out.

    Args:
        traces: a trace, or traces by name.
        delay_cutoff: in microseconds, drawn as a dashed line.
    """
    known = {name: rank.kernels.dropna(subset="delay") for name, rank in each_rank(traces).items()}
    longest = max([10, 10 * delay_cutoff, *(kernels["delay"].max() for kernels in known.values() if len(kernels))])
    edges = 10 ** np.arange(0, np.log10(longest) + 1 / BINS_PER_DECADE, 1 / BINS_PER_DECADE)
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=("share of the kernels", "share of the GPU time"))
    rows, cutoff = [], f"over_{delay_cutoff:g}_us"
    for (name, kernels), dash in zip(known.items(), DASHES * len(known), strict=False):
        delay, took = kernels["delay"], kernels["duration"]
        for column, (colour, weights) in enumerate(((UNUSED, np.ones(len(took))), (KERNEL, took)), start=1):
            heights = np.histogram(delay.clip(edges[0], edges[-1]), edges, weights=weights)[0]
            figure.add_scatter(
                **dict(x=edges, y=[*heights / (heights.sum() or np.nan), 0], mode="lines", row=1, col=column),
                **dict(name=escaped(name), legendgroup=name, showlegend=column == 1),
                line=dict(shape="hv", color=colour, dash=dash, width=2),
                hovertemplate=f"{escaped(name)}: %{{y:.1%}} in the bin from %{{x:,.1f}} µs on<extra></extra>",
            )
        over, time = delay > delay_cutoff, took.sum() or np.nan
        shares = {f"share_of_kernels_{cutoff}": over.mean(), f"share_of_gpu_time_{cutoff}": took[over].sum() / time}
        rows.append({"recording": name, "median_us": delay.median(), **shares})
    figure.add_vline(x=max(delay_cutoff, edges[0]), line=dict(color=HOST, dash="dash"))
    figure.update_xaxes(title="µs from launch to start", type="log", dtick=1, tickformat=",")
    figure.update_xaxes(range=[-0.1, np.log10(edges[-1]) + 0.1])
    figure.update_yaxes(tickformat=".0%", rangemode="tozero").update_layout(height=420)
    title = f"Launch delays, on a logarithmic axis (dashed: {delay_cutoff:g} µs; under 1 µs in the first bin)"
    note = "; ".join(f"{name}: {UNKNOWN}" for name, kernels in known.items() if kernels.empty)
    return finish(figure, title, traces, pandas.DataFrame(rows), note)


def queue(traces: Traces) -> go.Figure:
    """How many kernels were launched but not started, over time."""
    table = joined(traces, Trace.queue)
    recordings = table.groupby("recording", sort=False)
    figure = panels(dict.fromkeys(recordings.groups, 190))
    thinned = False
    for number, (name, rows) in enumerate(recordings, start=1):
        shown = rows.iloc[thin_steps(rows["waiting"].to_numpy())]
        thinned |= len(shown) < len(rows)
        figure.add_scatter(
            **dict(x=shown["time_us"].to_numpy(), y=shown["waiting"].to_numpy(), name=escaped(name), showlegend=False),
            **dict(mode="lines", line=dict(shape="hv", color=WALL, width=1), row=number, col=1),
            **dict(fill="tozeroy", fillcolor=FAINT),
            hovertemplate="from %{x:,.1f} µs on, %{y} kernels wait<extra></extra>",
        )
        figure.add_hline(y=rows["mean"].iloc[0], line=dict(color=HOST, dash="dash"), row=number, col=1)
    figure.update_yaxes(title="kernels waiting", rangemode="tozero").update_xaxes(tickformat=",")
    thinning = f"; drawn with {QUEUE_POINTS:,} points, each maximum kept" if thinned else ""
    figure.update_xaxes(title=f"microseconds since the first event{thinning}", row=len(recordings), col=1)
    told = recordings.agg(kernels_waiting_mean=("mean", "first"), kernels_waiting_most=("waiting", "max"))
    title = "Launch queue: kernels launched but not started (dashed: mean)"
    return finish(figure, title, traces, told.reset_index())


def streams(traces: Traces, within: str = "all") -> go.Figure:
    """How many streams were busy at the same time; and the union of all kernels beside the sum of their durations.

    Args:
        traces: a trace, or traces by name.
        within: one of labkit's ranges, to count only the kernels launched in it; "all" for the whole trace.
    """
    table = joined(traces, Trace.concurrency)
    check_known("within", within, table["range"].unique())
    table = table[table["range"] == within]
    recording, busy = table["recording"].map(escaped), table["busy_streams"].astype(str)
    levels = table.assign(value=table["share_of_wall"], panel="share of the wall time", place=recording, series=busy)
    looks = {str(n): (_busy(n), STREAMS[min(n, 4)], "") for n in range(table["busy_streams"].max() + 1)}
    looks |= {"sum_us": ("sum of durations", KERNEL, "/"), "union_us": ("union of all kernels", WALL, "")}
    first = table.drop_duplicates("recording")
    totals = [
        first.assign(value=first[column] / 1e3, panel="milliseconds", series=column).assign(
            place=first["recording"].map(escaped) + f", {column.removesuffix('_us')}"
        )
        for column in ("sum_us", "union_us")
    ]
    figure = bars(pandas.concat([levels, pandas.concat(totals).sort_index(kind="stable")]), looks, shared=False)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02], row=1, col=1)
    where = "" if within == "all" else f" in {within}"
    title = f"Streams busy at the same time{where}, and the union beside the sum of all kernels"
    return finish(figure, title, traces, table)


def ranges(traces: Traces) -> go.Figure:
    """Time on the host in labkit's ranges, on average of a step; of a CPU's traces as well.

    On a GPU this is the time to launch the work of a range, not to do it. A range within another counts in both.
    """
    table = joined(traces, Trace.ranges)
    without = [name for name in each_rank(traces) if name not in set(table["recording"])]
    table = pandas.concat([table, pandas.DataFrame({"recording": without, "range": NOWHERE})])
    order = {name: position for position, name in enumerate(each_rank(traces))}
    table = table.sort_values("recording", key=lambda names: names.map(order), kind="stable")
    place = [
        f"{escaped(name)}<br>(no range of labkit)" if name in without else escaped(name) for name in table["recording"]
    ]
    drawn = table.assign(value=table["us_per_step"] / 1e3, series=table["range"], place=place)
    looks = {name: (escaped(name), *range_look(name)) for name in table["range"].unique()}
    figure = bars(drawn, looks, "milliseconds a step, on the host")
    return finish(figure, "Time of the host by range, of a step on average", traces, table)


def operators(traces: Traces) -> go.Figure:
    """The operators and CUDA calls in which the host spent most time of its own; of a CPU's traces as well."""
    table = joined(traces, Trace.operators).assign(ms=lambda table: table["self_us"] / 1e3)
    unit = "own time, milliseconds"
    return _ranking(table, traces, TOP_OPERATORS, HOSTS, "Operators by their own time on the host", unit)


def summary(traces: Traces) -> go.Figure:
    """What bounds each recording, why, and the numbers that say so: a table with a column for each recording."""
    table = joined(traces, Trace.summary)
    cells = readable(table).set_index("recording").T
    labels, recordings = list(cells.index), [list(cells[name]) for name in cells]
    share = 640 / 6.5 / (3 + 4 * len(recordings))  # characters in a narrow figure, of a column as wide as 1
    lines = sum(
        max(ceil(len(label) / (3 * share)), *(ceil(len(cell) / (4 * share)) for cell in row))
        for label, *row in zip(labels, *recordings, strict=True)
    )
    bold = [[f"<b>{verdict}</b>", *map(escaped, rest)] for verdict, *rest in recordings]
    header = dict(values=["", *(f"<b>{escaped(name)}</b>" for name in cells)], align="left", height=26)
    columns = dict(values=[labels, *bold], align="left", height=26, fill_color=CLEAR)
    figure = go.Figure(
        go.Table(columnwidth=[3, *[4] * len(recordings)], header=header, cells=columns, header_fill_color=FAINT)
    )
    finish(figure, "What bounds each recording", traces, table)
    return figure.update_layout(height=190 + 16 * lines + 10 * (len(labels) + 1), margin=dict(l=20, r=20, b=20))


def thin_steps(values: np.ndarray) -> np.ndarray:
    """The positions of the `values` to draw: at most `QUEUE_POINTS`, with the least and the largest of each stretch."""
    if len(values) <= QUEUE_POINTS:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), QUEUE_POINTS // 2)
    extremes = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(extremes)


def _shares_of_wall(table: pandas.DataFrame, series: str, looks: Looks) -> go.Figure:
    """Shares of the wall time, stacked: a bar for each recording, made of the values of the column `series`."""
    drawn = table.assign(value=table["share_of_wall"], place=table["recording"].map(escaped), series=table[series])
    return bars(drawn, looks, "share of the wall time").update_xaxes(tickformat=".1%")


def _ranking(
    table: pandas.DataFrame, traces: Traces, top: int, colours: Mapping[str, str], title: str, unit: str
) -> go.Figure:
    """The `top` names with most `ms` over all recordings, which hatching tells apart, coloured by `kind`."""
    ranks = {name: rank for rank, name in enumerate(table.groupby("name")["ms"].sum().nlargest(top).index, start=1)}
    recordings = list(table["recording"].unique())
    table = table[table["name"].isin(list(ranks))].sort_values(
        "name", key=lambda names: names.map(ranks), kind="stable"
    )
    looks: dict[str, tuple[str, str, str]] = {}
    for number, recording in enumerate(recordings):
        for kind, colour in colours.items():
            name = f"{escaped(recording)}: {kind}" if len(recordings) > 1 else kind
            looks[f"{recording}: {kind}"] = (name, colour, PATTERNS[number % len(PATTERNS)])
    place = [f"{ranks[name]}. {escaped(shortened(name))}" for name in table["name"]]
    drawn = table.assign(value=table["ms"], place=place, series=table["recording"] + ": " + table["kind"])
    figure = bars(drawn, looks, unit, beside="recording")
    return finish(figure, f"{title}: the first {len(ranks)}", traces, table)


def _host_at_end(gap: Any) -> str:
    """The operator and, if there is one, the range that the host was in at the end of a gap."""
    operator = "no operator" if gap.operator_at_end == NOWHERE else escaped(shortened(gap.operator_at_end, 36))
    return operator if gap.range_at_end == NOWHERE else f"{operator}<br>in {escaped(gap.range_at_end)}"


def _busy(number: int) -> str:
    return f"{number} stream{'s' * (number != 1)} busy"


# Each view's name, a few words for a menu, and its function.
VIEWS: dict[str, tuple[str, Callable[..., go.Figure]]] = {
    "temporal": ("where the time went", temporal),
    "summary": ("what bounds it", summary),
    "steps": ("step by step", steps),
    "idle": ("idle time by cause", idle),
    "gaps": ("largest gaps", gaps),
    "kinds": ("kinds of kernels", kinds),
    "kernels": ("kernels that took most", kernels),
    "memory": ("copies and memsets", memory),
    "launches": ("launches", launches),
    "delays": ("launch delays", delays),
    "queue": ("launch queue", queue),
    "streams": ("streams busy together", streams),
    "timeline": ("timeline", timeline),
    "ranges": ("ranges on the host", ranges),
    "operators": ("operators on the host", operators),
}
