"""The tables of `labkit.Trace` as figures, of one recording or of several side by side.

Each takes a trace, or traces by name. A trace of several ranks is drawn rank by rank. What a table raises, the figure
raises: a trace recorded on a CPU has no more than `operators_figure`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.errors import check_known
from labkit.show.figures import HOST, KERNEL, UNUSED, WALL
from labkit.show.recordings import (
    QUEUE_POINTS,
    Traces,
    add_bars,
    finish,
    joined,
    look,
    panels,
    percent,
    shortened,
    thin_steps,
)
from labkit.traces.tables import Trace

# Okabe and Ito's yellow, which nothing else has, and a wine of Paul Tol's that goes with them.
KINDS = {"compute": KERNEL, "memory": "#F0E442", "communication": "#882255"}
# For each cause its words, colour and hatching; those of the simulations mean the same there.
CAUSES = {
    "host_wait": ("waits for the host (host_wait)", HOST, "/"),
    "kernel_wait": ("pauses between kernels (kernel_wait)", UNUSED, ""),
    "other": ("waits for something else (other)", "#DDDDDD", "x"),
    "unknown": ("not known (unknown)", "#FFFFFF", "."),
}
STREAMS = (UNUSED, KERNEL, "#0F6CA6", "#0A3A5A", WALL)  # 0, 1, 2, ... busy streams: the darker, the more
SHARES = {
    "share_of_kernels": ("share of the kernels", UNUSED),
    "share_of_gpu_time": ("share of the GPU time, durations added up", KERNEL),
    "share_of_wall": ("share of the wall time, in which any of them ran", WALL),
}
PATTERNS = ("", "/", ".", "x", "-", "+")  # of recordings, where colours have another meaning
HOSTS = {"operator": UNUSED, "CUDA call": HOST}


def temporal_figure(traces: Traces) -> go.Figure:
    """Where the wall time went: idle, compute, memory and communication, a bar for each recording."""
    table = joined(traces, Trace.temporal)
    walls = table[table["part"] == "wall"].set_index("recording")["us"]
    table = table[table["part"].isin(["idle", *KINDS])].rename(columns={"share_of_busy": "other_share"})
    looks = {part: (part, colour, "") for part, colour in {"idle": UNUSED, **KINDS}.items()}
    figure = _stacked_shares(table, "part", looks, "busy time")
    figure.add_vline(x=1, line=dict(color=WALL, dash="dash", width=1))
    most = table.groupby("recording")["share_of_wall"].sum().max()
    overlap = most > 1.001
    beyond = "; beyond 100%: kinds at the same time" if overlap else ""
    figure.update_xaxes(title=f"share of the wall time{beyond}", tickformat=".0%", range=[0, max(1.02, most)])
    words = [f"{name}, wall time {us:,.1f} µs: {_in_words(table, name, 'part')}" for name, us in walls.items()]
    note = " Kinds ran at the same time, so the parts add up to more than 100%." if overlap else ""
    return finish(figure, "Where the wall time of the GPU went", traces, words, note)


def idle_figure(traces: Traces) -> go.Figure:
    """Idle time of the whole device, when no stream was busy, by what the GPU waited for."""
    table = joined(traces, Trace.idle)
    table = table[table["scope"] == "device"].rename(columns={"share_of_idle": "other_share"})
    figure = _stacked_shares(table, "cause", CAUSES, "idle time")
    idle = table.groupby("recording", sort=False)["us"].sum()
    words = [f"{name}, idle for {us:,.1f} µs: {_in_words(table, name, 'cause')}" for name, us in idle.items()]
    return finish(figure, "What the GPU waited for while no stream was busy", traces, words)


def _stacked_shares(
    table: pandas.DataFrame, column: str, looks: Mapping[str, tuple[str, str, str]], other: str
) -> go.Figure:
    """Shares of the wall time by what is in `column`, stacked; to the pointer, `other_share`, of the `other`, too."""
    figure = go.Figure()
    for value, (name, colour, pattern) in looks.items():
        rows = table[table[column] == value]
        hover = [
            f"{row.recording}: {name} {percent(row.share_of_wall)} of the wall time, {row.us:,.1f} µs"
            + ("" if np.isnan(row.other_share) else f", {percent(row.other_share)} of the {other}")
            for row in rows.itertuples()
        ]
        add_bars(figure, rows["recording"], rows["share_of_wall"], hover, name=name, marker=look(colour, pattern))
    figure.update_xaxes(title="share of the wall time", tickformat=".1%", rangemode="tozero")
    return figure.update_layout(barmode="stack", height=250 + 45 * table["recording"].nunique())


def kernel_kinds_figure(traces: Traces) -> go.Figure:
    """Kernels and memory operations by kind: how long they took in all, beside how many there were."""
    table = joined(traces, lambda trace: trace.kernels(by="kind"))
    titles = ("sum of durations, milliseconds", "how many")
    figure, names = make_subplots(cols=2, shared_yaxes=True, subplot_titles=titles), table["recording"].unique()
    for kind, colour in KINDS.items():
        rows = table[table["kind"] == kind]
        hover = [f"{row.recording}: {_described(row, kind)}" for row in rows.itertuples()]
        for column, values in enumerate((rows["total_us"] / 1e3, rows["count"]), start=1):
            shown = dict(name=kind, legendgroup=kind, showlegend=column == 1, marker=look(colour))
            add_bars(figure, rows["recording"], values, hover, **shown, row=1, col=column)
    words = [
        f"{name}: " + "; ".join(_described(row, row.kind) for row in rows.itertuples())
        for name, rows in table.groupby("recording", sort=False)
    ]
    figure.update_xaxes(tickformat=",", rangemode="tozero")
    figure.update_layout(barmode="stack", height=260 + 45 * len(names))
    return finish(figure, "Kernels and memory operations by kind", traces, words)


def top_kernels_figure(traces: Traces, top: int = 10) -> go.Figure:
    """The kernels and memory operations that took most time, all of one name together."""
    table = joined(traces, Trace.kernels)
    hover = [
        f"{html.escape(row.name)}<br>{row.recording}: {_described(row, row.kind)}"
        for row in table.itertuples(index=False)
    ]
    table = table.assign(value=table["total_us"] / 1e3, share=table["share_of_busy"], hover=hover)
    return _ranking(table, traces, top, KINDS, "Kernels that took most time", "sum of durations, milliseconds")


def operators_figure(traces: Traces, top: int = 12) -> go.Figure:
    """The operators and CUDA calls in which the host spent most time of its own; of a CPU's traces as well."""
    table = joined(traces, Trace.operators)
    hover = [
        f"{html.escape(row.name)}<br>{row.recording}: {row.count:,} times, {row.self_us:,.1f} µs of its own, "
        f"{row.total_us:,.1f} µs with what it called, {percent(row.share_of_self)} of all own times"
        for row in table.itertuples(index=False)
    ]
    table = table.assign(value=table["self_us"] / 1e3, share=table["share_of_self"], hover=hover)
    return _ranking(table, traces, top, HOSTS, "Operators by their own time on the host", "own time, milliseconds")


def _ranking(
    table: pandas.DataFrame, traces: Traces, top: int, colours: Mapping[str, str], title: str, unit: str
) -> go.Figure:
    """The names whose `value` is largest over all recordings, with their `kind`, `share`, and `hover`."""
    names = list(table.groupby("name")["value"].sum().nlargest(top).index)
    table = table[table["name"].isin(names)]
    place = {name: position for position, name in enumerate(names)}
    recordings = list(table["recording"].unique())
    figure = go.Figure()
    for (recording, kind), rows in table.groupby(["recording", "kind"], sort=False):
        number = recordings.index(recording)
        pattern = PATTERNS[number % len(PATTERNS)]
        named = dict(name=f"{recording}: {kind}" if len(recordings) > 1 else kind, offsetgroup=str(number))
        marker = look(colours[kind], pattern)
        add_bars(figure, rows["name"].map(place), rows["value"], rows["hover"], marker=marker, **named)
    words = [
        f"{recording}: "
        + "; ".join(f"{shortened(row.name)} {row.value:,.2f} ({percent(row.share)})" for row in rows.itertuples())
        for recording, rows in table.groupby("recording", sort=False)
    ]
    figure.update_yaxes(tickvals=list(place.values()), ticktext=[html.escape(shortened(name)) for name in names])
    figure.update_xaxes(title=unit, tickformat=",", rangemode="tozero")
    figure.update_layout(barmode="group", height=220 + (14 + 14 * len(recordings)) * len(names))
    return finish(figure, f"{title}: the first {len(names)}", traces, words, f" In {unit}.")


def launches_figure(traces: Traces, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> go.Figure:
    """How many kernels waited or were launched slowly, beside how much time they took: many may be hardly any time.

    The cutoffs, in microseconds, are those of `labkit.Trace.launches`. A kernel may be in several rows.
    """
    table = joined(traces, lambda trace: trace.launches(runtime_cutoff, delay_cutoff))
    recordings = list(table["recording"].unique())
    figure = panels(recordings)
    for number, (_, rows) in enumerate(table.groupby("recording", sort=False), start=1):
        what = [_micro(text) for text in rows["what"]]
        hover = [f"{_micro(row.what)}: {_launched(row)}" for row in rows.itertuples()]
        for column, (share, colour) in SHARES.items():
            shown = dict(name=share, legendgroup=share, showlegend=number == 1, marker=look(colour))
            add_bars(figure, what, rows[column], hover, **shown, row=number, col=1)
    words = [
        f"{name}: " + "; ".join(f"{_micro(row.what)}: {_launched(row)}" for row in rows.itertuples())
        for name, rows in table.groupby("recording", sort=False)
    ]
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    figure.update_xaxes(title="share", row=len(recordings), col=1)
    figure.update_layout(barmode="group", height=190 + 230 * len(recordings))
    return finish(figure, "Launches: share of the kernels beside share of the time", traces, words)


def trace_queue_figure(traces: Traces) -> go.Figure:
    """How many kernels were launched but not started, over time."""
    table = joined(traces, Trace.queue)
    recordings = list(table["recording"].unique())
    figure = panels(recordings)
    words, thinned = [], False
    for number, (name, rows) in enumerate(table.groupby("recording", sort=False), start=1):
        shown = thin_steps(rows["waiting"].to_numpy())
        thinned |= len(shown) < len(rows)
        figure.add_scatter(
            x=rows["time_us"].to_numpy()[shown],
            y=rows["waiting"].to_numpy()[shown],
            **dict(mode="lines", line=dict(shape="hv", color=WALL, width=1), name=name, showlegend=False),
            **dict(fill="tozeroy", fillcolor="rgba(153, 153, 153, 0.3)", row=number, col=1),
            hovertemplate="from %{x:,.1f} µs on, %{y} kernels wait<extra></extra>",
        )
        mean, most = rows["mean"].iloc[0], rows["waiting"].max()
        figure.add_hline(y=mean, line=dict(color=HOST, dash="dash"), row=number, col=1)
        average = "an unknown number of" if np.isnan(mean) else f"{mean:,.1f}"
        words.append(f"{name}: {average} kernels wait on average, at most {most:,}")
    figure.update_yaxes(title="kernels waiting", rangemode="tozero").update_xaxes(tickformat=",")
    thinning = f"; drawn with {QUEUE_POINTS:,} points, each maximum kept" if thinned else ""
    figure.update_xaxes(title=f"microseconds since the first event{thinning}", row=len(recordings), col=1)
    figure.update_layout(height=190 + 210 * len(recordings))
    title = "Launch queue: kernels launched but not started (dashed: mean)"
    return finish(figure, title, traces, words, reverse=False)


def concurrency_figure(traces: Traces, within: str = "all") -> go.Figure:
    """How many streams were busy at once; and the time in which any was (union) beside the sum of the durations.

    Args:
        traces: what to draw.
        within: a range of labkit, to count only the kernels launched in it; "all" for the whole trace.
    """
    table = joined(traces, Trace.concurrency)
    check_known("within", within, table["range"].unique())
    table = table[table["range"] == within]
    titles = ("share of the wall time", "milliseconds")
    figure = make_subplots(cols=2, subplot_titles=titles, horizontal_spacing=0.16)
    for busy, rows in table.groupby("busy_streams"):
        hover = [f"{row.recording}: {_level(row)}" for row in rows.itertuples()]
        marker = look(STREAMS[min(busy, len(STREAMS) - 1)])
        named = dict(name=f"{_streams(busy)} busy", marker=marker, row=1, col=1)
        add_bars(figure, rows["recording"], rows["share_of_wall"], hover, **named)
    first = table.drop_duplicates("recording")
    for column, name, colour in (("sum_us", "sum of durations", KERNEL), ("union_us", "union", WALL)):
        hover = [f"{row.recording}: {name} {getattr(row, column):,.1f} µs" for row in first.itertuples()]
        y = [f"{recording}, {name.split()[0]}" for recording in first["recording"]]
        shown = dict(showlegend=False, marker=look(colour), row=1, col=2)
        add_bars(figure, y, first[column] / 1e3, hover, name=name, **shown)
    words = [
        f"{name}: union {rows['union_us'].iloc[0]:,.1f} µs, sum {rows['sum_us'].iloc[0]:,.1f} µs; "
        + "; ".join(map(_level, rows.itertuples()))
        for name, rows in table.groupby("recording", sort=False)
    ]
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02], col=1).update_xaxes(tickformat=",", col=2)
    order = [f"{recording}, {total}" for recording in first["recording"] for total in ("sum", "union")]
    figure.update_yaxes(categoryorder="array", categoryarray=order, col=2)
    figure.update_layout(barmode="stack", height=260 + 55 * len(first))
    where = "" if within == "all" else f" in {within}"
    return finish(figure, f"Streams busy at once{where}, and the union beside the sum of all kernels", traces, words)


def _micro(what: str) -> str:
    return what.replace(" us", " µs").replace(">", "over")


def _in_words(table: pandas.DataFrame, recording: str, column: str) -> str:
    rows = table[table["recording"] == recording]
    shares = zip(rows[column], rows["share_of_wall"], rows["us"], strict=True)
    return ", ".join(f"{part} {percent(share)} ({us:,.1f} µs)" for part, share, us in shares)


def _described(row: Any, kind: str) -> str:
    if not row.count:
        return f"{kind}: none"
    return (
        f"{kind}, {row.count:,} of them, {row.total_us:,.1f} µs in all, {row.mean_us:,.1f} µs on average, "
        f"{percent(row.share_of_busy)} of the busy time"
    )


def _launched(row: Any) -> str:
    if np.isnan(row.kernels):
        return "cannot be known, as no launch is in the trace"
    return (
        f"{row.kernels:,.0f} of the kernels ({percent(row.share_of_kernels)}), {row.gpu_us:,.1f} µs, "
        f"{percent(row.share_of_gpu_time)} of the GPU time, {percent(row.share_of_wall)} of the wall time"
    )


def _level(row: Any) -> str:
    return f"{_streams(row.busy_streams)} busy {percent(row.share_of_wall)} of the time ({row.us:,.1f} µs)"


def _streams(number: int) -> str:
    return f"{number} stream" + "s" * (number != 1)
