"""Where the time of the GPU went, and what it waited for: figures of one recording or of several side by side.

Here and in `kernels`, `launching` and `host` a figure takes a trace, or traces by name, and draws a table of
`labkit.Trace`. A trace of several ranks is drawn rank by rank. What a table raises, the figure raises: a trace recorded
on a CPU has no more than the figures in `host`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.show.figures import HOST, UNUSED, WALL
from labkit.show.recordings import (
    KINDS,
    Traces,
    add_bars,
    escaped,
    finish,
    joined,
    look,
    panels,
    percent,
    shortened,
)
from labkit.traces.rank import NOWHERE
from labkit.traces.trace import Trace

PARTS = {"idle": UNUSED, **KINDS}
# For each cause its words, colour and hatching; those of the simulations mean the same there.
CAUSES = {
    "host_wait": ("waits for the host (host_wait)", HOST, "/"),
    "kernel_wait": ("pauses between kernels (kernel_wait)", UNUSED, ""),
    "other": ("waits for something else (other)", "#DDDDDD", "x"),
    "unknown": ("not known (unknown)", "#FFFFFF", "."),
}


def temporal_figure(traces: Traces) -> go.Figure:
    """Where the wall time went: idle, compute, memory and communication, a bar for each recording."""
    table = joined(traces, Trace.temporal)
    walls = table[table["part"] == "wall"].set_index("recording")["us"]
    table = table[table["part"].isin(PARTS)].rename(columns={"share_of_busy": "other_share"})
    looks = {part: (part, colour, "") for part, colour in PARTS.items()}
    figure = _stacked_shares(table, "part", looks, "busy time")
    figure.add_vline(x=1, line=dict(color=WALL, dash="dash", width=1))
    most = table.groupby("recording")["share_of_wall"].sum().max()
    overlap = most > 1.001
    beyond = "; beyond 100%: kinds at the same time" if overlap else ""
    figure.update_xaxes(title=f"share of the wall time{beyond}", tickformat=".0%", range=[0, max(1.02, most)])
    words = [f"{name}, wall time {us:,.1f} µs: {_in_words(table, name, 'part')}" for name, us in walls.items()]
    note = " Kinds ran at the same time, so the parts add up to more than 100%." if overlap else ""
    return finish(figure, "Where the wall time of the GPU went", traces, words, note)


def steps_figure(traces: Traces) -> go.Figure:
    """Idle, compute, memory and communication of each step, from its first GPU activity to that of the next.

    A step that is unlike the others stands out; what is true of it should not be said of all.
    """
    table = joined(traces, lambda trace: trace.temporal(by="step"))
    steps = table.groupby("recording", sort=False)["step"].nunique()
    figure, words = panels((30 + 24 * steps).to_dict()), []
    for number, (name, rows) in enumerate(table.groupby("recording", sort=False), start=1):
        hover = pandas.Series([_step_part(row) for row in rows.itertuples()], rows.index)
        for part, colour in PARTS.items():
            ours = rows["part"] == part
            shown = dict(name=part, legendgroup=part, showlegend=number == 1, marker=look(colour), row=number, col=1)
            add_bars(figure, rows["step"][ours].astype(str), rows["us"][ours], hover[ours], **shown)
        walls = rows[rows["part"] == "wall"]
        figure.add_scatter(
            x=walls["us"],
            y=walls["step"].astype(str),
            **dict(mode="markers", name="wall time", legendgroup="wall", showlegend=number == 1, row=number, col=1),
            marker=dict(symbol="line-ns", size=10, line=dict(color=WALL, width=2)),
            hovertext=list(hover[walls.index]),
            hoverinfo="text",
        )
        words.append(f"{name}: " + "; ".join(hover[rows["part"].isin(["wall", "idle"])]))
    shares = table[table["part"].isin(PARTS)].groupby(["recording", "step"])["share_of_wall"].sum()
    beyond = "; bars beyond the wall time: kinds at the same time" if (shares > 1.001).any() else ""
    figure.update_yaxes(title="step", type="category").update_xaxes(tickformat=",", rangemode="tozero")
    figure.update_xaxes(title=f"microseconds{beyond}", row=len(steps), col=1).update_layout(barmode="stack")
    return finish(figure, "Where the time of each step went on the GPU", traces, words)


def idle_figure(traces: Traces) -> go.Figure:
    """Idle time of the whole device, when no stream was busy, by what the GPU waited for."""
    table = joined(traces, Trace.idle)
    table = table[table["scope"] == "device"].rename(columns={"share_of_idle": "other_share"})
    figure = _stacked_shares(table, "cause", CAUSES, "idle time")
    idle = table.groupby("recording", sort=False)["us"].sum()
    words = [
        f"{name}, idle for {us:,.1f} µs; of the wall time, {_in_words(table, name, 'cause')}"
        for name, us in idle.items()
    ]
    return finish(figure, "What the GPU waited for while no stream was busy", traces, words)


def gaps_figure(traces: Traces, largest: int = 10) -> go.Figure:
    """The largest times at which no stream was busy, named after what the host was in when they ended.

    Args:
        traces: what to draw.
        largest: how many gaps of each rank.
    """
    table = joined(traces, lambda trace: trace.gaps(largest))
    idle = joined(traces, Trace.idle).query("scope == 'device'").groupby("recording", sort=False)["us"].sum()
    gaps = {name: table[table["recording"] == name].reset_index(drop=True) for name in idle.index}
    notes = {name: _how_much(rows["us"], idle[name]) for name, rows in gaps.items()}
    figure, in_legend = panels({name: 30 + 34 * len(rows) for name, rows in gaps.items()}, notes), set()
    for number, rows in enumerate(gaps.values(), start=1):
        hover = pandas.Series([_gap(row) for row in rows.itertuples()], rows.index, dtype=object)
        for cause, ours in rows.groupby("cause", sort=False):
            name, colour, pattern = CAUSES[cause]
            shown = dict(name=name, legendgroup=cause, showlegend=cause not in in_legend, row=number, col=1)
            add_bars(figure, ours.index, ours["us"], hover[ours.index], marker=look(colour, pattern), **shown)
            in_legend.add(cause)
        ended_in = ["<br>".join(_ended_in(row)) for row in rows.itertuples()]
        figure.update_yaxes(tickvals=list(rows.index), ticktext=ended_in, row=number, col=1)
    words = [
        f"{name}, {notes[name]}"
        + "".join(f"; {row.us:,.1f} µs, {row.cause}, until {' '.join(_ended_in(row))}" for row in rows.itertuples())
        for name, rows in gaps.items()
    ]
    figure.update_xaxes(tickformat=",", rangemode="tozero")
    figure.update_xaxes(title="length of the gap, microseconds", row=len(gaps), col=1)
    figure.update_layout(barmode="overlay")
    return finish(figure, "The largest gaps, and where the host was when they ended", traces, words)


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


def _in_words(table: pandas.DataFrame, recording: str, column: str) -> str:
    rows = table[table["recording"] == recording]
    shares = zip(rows[column], rows["share_of_wall"], rows["us"], strict=True)
    return ", ".join(f"{part} {percent(share)} ({us:,.1f} µs)" for part, share, us in shares)


def _step_part(row: Any) -> str:
    if row.part == "wall":
        return f"step {row.step}: wall time {row.us:,.1f} µs"
    return f"step {row.step}: {row.part} {row.us:,.1f} µs, {percent(row.share_of_wall)} of its wall time"


def _how_much(gaps: pandas.Series, idle_us: float) -> str:
    """What the gaps are of all idle time: a few large ones, or many small ones."""
    if gaps.empty:
        return "never idle"
    return f"the largest {len(gaps)}, {gaps.sum():,.1f} µs, are {percent(gaps.sum() / idle_us)} of the idle time"


def _ended_in(gap: Any) -> list[str]:
    """The operator and, if there is one, the range that the host was in at the end of a gap."""
    operator = "no operator" if gap.operator_at_end == NOWHERE else escaped(shortened(gap.operator_at_end, 36))
    return [operator] if gap.range_at_end == NOWHERE else [operator, f"in {escaped(gap.range_at_end)}"]


def _gap(gap: Any) -> str:
    delay = "its launch is not in the trace" if np.isnan(gap.launch_delay_us) else f"{gap.launch_delay_us:,.1f} µs"
    places = (gap.operator_at_begin, gap.range_at_begin, gap.operator_at_end, gap.range_at_end)
    operator_before, range_before, operator_after, range_after = (escaped(shortened(place, 90)) for place in places)
    return (
        f"{gap.us:,.1f} µs, from {gap.begin_us:,.1f} µs on: {CAUSES[gap.cause][0]}"
        f"<br>host at its begin: {operator_before}, range {range_before}"
        f"<br>host at its end: {operator_after}, range {range_after}"
        f"<br>next kernel: {escaped(shortened(gap.next_kernel, 90))}"
        f"<br>from its launch to its begin: {delay}"
    )
