"""How kernels got to the GPU: launches, delays, the queue, and streams busy at once.

Figures of one recording or of several side by side; see `labkit.show.breakdowns`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.errors import check_known
from labkit.show.figures import HOST, KERNEL, UNUSED, WALL
from labkit.show.recordings import Traces, add_bars, each_rank, finish, joined, look, panels, percent
from labkit.traces.trace import Trace

STREAMS = (UNUSED, KERNEL, "#0F6CA6", "#0A3A5A", WALL)  # 0, 1, 2, ... busy streams: the darker, the more
SHARES = {
    "share_of_kernels": ("share of the kernels", UNUSED),
    "share_of_gpu_time": ("share of the GPU time, durations added up", KERNEL),
    "share_of_wall": ("share of the wall time, in which any of them ran", WALL),
}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")  # of recordings, as their hatching elsewhere
BINS_PER_DECADE = 8
QUEUE_POINTS = 2000
UNKNOWN = "cannot be known, as no launch is in the trace"


def launches_figure(traces: Traces, runtime_cutoff: float = 50, delay_cutoff: float = 100) -> go.Figure:
    """How many kernels waited or were launched slowly, beside how much time they took: many may be hardly any time.

    The cutoffs, in microseconds, are those of `labkit.Trace.launches`. A kernel may be in several rows.
    """
    table = joined(traces, lambda trace: trace.launches(runtime_cutoff, delay_cutoff))
    recordings = list(table["recording"].unique())
    figure = panels(dict.fromkeys(recordings, 190))
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
    figure.update_layout(barmode="group")
    return finish(figure, "Launches: share of the kernels beside share of the time", traces, words)


def delays_figure(traces: Traces, delay_cutoff: float = 100.0) -> go.Figure:
    """How long kernels waited from launch to begin: the distribution, and the same weighted by the kernels' durations.

    `launches_figure` counts the delays beyond the cutoff; this shows how far beyond they are. Those of a few
    microseconds are of kernels that the GPU waited for, those of milliseconds of kernels in a full queue. Kernels
    whose launch is not in the trace are left out.

    Args:
        traces: what to draw.
        delay_cutoff: in microseconds, dashed.
    """
    known = {name: rank.kernels.dropna(subset="delay") for name, rank in each_rank(traces).items()}
    longest = max([10, 10 * delay_cutoff, *(kernels["delay"].max() for kernels in known.values() if len(kernels))])
    edges = 10 ** np.arange(0, np.log10(longest) + 1 / BINS_PER_DECADE, 1 / BINS_PER_DECADE)
    shares = ("share_of_kernels", "share_of_gpu_time")
    figure = make_subplots(cols=2, shared_yaxes=True, subplot_titles=("share of the kernels", "share of the GPU time"))
    for number, (name, kernels) in enumerate(known.items()):
        for column, (share, weights) in enumerate(zip(shares, (None, kernels["duration"]), strict=True), start=1):
            heights = np.histogram(kernels["delay"].clip(edges[0], edges[-1]), edges, weights=weights)[0]
            heights = heights / (heights.sum() or np.nan)
            line = dict(shape="hv", color=SHARES[share][1], dash=DASHES[number % len(DASHES)], width=2)
            figure.add_scatter(
                x=edges,
                y=[*heights, 0],
                **dict(mode="lines", line=line, name=name, legendgroup=name, showlegend=column == 1),
                hovertemplate=f"{name}: %{{y:.1%}} in the bin from %{{x:,.1f}} µs on<extra></extra>",
                **dict(row=1, col=column),
            )
    figure.add_vline(x=max(delay_cutoff, edges[0]), line=dict(color=HOST, dash="dash"))
    figure.update_xaxes(title="µs from launch to begin", type="log", dtick=1, tickformat=",")
    figure.update_xaxes(range=[-0.1, np.log10(edges[-1]) + 0.1])
    figure.update_yaxes(tickformat=".0%", rangemode="tozero").update_layout(height=420)
    words = [f"{name}: {_delayed(kernels, delay_cutoff)}" for name, kernels in known.items()]
    title = f"Launch delays, on a logarithmic axis (dashed: {delay_cutoff:g} µs; under 1 µs in the first bin)"
    return finish(figure, title, traces, words, reverse=False)


def trace_queue_figure(traces: Traces) -> go.Figure:
    """How many kernels were launched but not started, over time."""
    table = joined(traces, Trace.queue)
    recordings = list(table["recording"].unique())
    figure = panels(dict.fromkeys(recordings, 190))
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


def thin_steps(values: np.ndarray, points: int = QUEUE_POINTS) -> np.ndarray:
    """Which of `values` to draw: at most `points`, the least and the largest of every stretch among them."""
    if len(values) <= points:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), points // 2)
    extremes = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(extremes)


def _micro(what: str) -> str:
    return what.replace(" us", " µs").replace(">", "over")


def _delayed(kernels: pandas.DataFrame, cutoff: float) -> str:
    if kernels.empty:
        return UNKNOWN
    delay, duration = kernels["delay"], kernels["duration"]
    share_of_time = duration[delay > cutoff].sum() / (duration.sum() or np.nan)
    return (
        f"half of the kernels waited for more than {delay.median():,.1f} µs, {percent((delay > cutoff).mean())} for "
        f"more than {cutoff:g} µs, with {percent(share_of_time)} of the GPU time"
    )


def _launched(row: Any) -> str:
    if np.isnan(row.kernels):
        return UNKNOWN
    return (
        f"{row.kernels:,.0f} of the kernels ({percent(row.share_of_kernels)}), {row.gpu_us:,.1f} µs, "
        f"{percent(row.share_of_gpu_time)} of the GPU time, {percent(row.share_of_wall)} of the wall time"
    )


def _level(row: Any) -> str:
    return f"{_streams(row.busy_streams)} busy {percent(row.share_of_wall)} of the time ({row.us:,.1f} µs)"


def _streams(number: int) -> str:
    return f"{number} stream" + "s" * (number != 1)
