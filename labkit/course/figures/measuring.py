"""The cost of networks: their sizes, repeated timings, and the roofline of their device."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.measure.roofline import roofline_seconds
from labkit.show.style import BELOW, COLOURS, LEGEND_BELOW, LINES, UNUSED, look
from labkit.stamp import describe

TICKS = [digit * 10**power for power in range(-2, 7) for digit in (1, 2, 5)]
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")


def size_bars(sizes: Mapping[str, tuple[int, int]]) -> go.Figure:
    """Parameters beside work: for each network its parameters and the FLOPs of a forward pass.

    Args:
        sizes: by the network's name, from `labkit.measure.count`.
    """
    figure = make_subplots(cols=2, subplot_titles=("parameters, millions", "one forward pass, GFLOP"))
    for column, (unit, colour) in enumerate(((1e6, COLOURS["G"]), (1e9, COLOURS["D"])), start=1):
        values = [size[column - 1] / unit for size in sizes.values()]
        # Beside the bar, because no text can be read well on orange.
        text = dict(texttemplate="%{x:.1f}", textposition="outside", cliponaxis=False)
        figure.add_bar(y=list(sizes), x=values, orientation="h", marker_color=colour, **text, row=1, col=column)
    told = "; ".join(f"{name}: {p / 1e6:.1f} million parameters, {f / 1e9:.1f} GFLOP" for name, (p, f) in sizes.items())
    figure.update_yaxes(autorange="reversed").update_yaxes(showticklabels=False, col=2)
    return figure.update_layout(
        title="Parameters are not work", showlegend=False, height=320, meta={"text": f"{told}."}
    )


def bytes_bars(moved: pandas.DataFrame) -> go.Figure:
    """Bytes that operators have to move: a bar for each step, divided by the kinds of operators.

    Args:
        moved: GB, with a row for each step and a column for each kind. ``attrs["stamp"]`` says what was counted.
    """
    figure = go.Figure()
    for kind, colour in zip(moved, [*LINES[: len(moved.columns) - 1], UNUSED], strict=True):
        figure.add_bar(name=kind, y=list(moved.index), x=moved[kind], orientation="h", marker=look(colour))
    figure.update_yaxes(autorange="reversed").update_xaxes(title="GB", title_standoff=4)
    title = f"What a step has to move<br><sub>{html.escape(moved.attrs['stamp'])}</sub>"
    words = "; ".join(f"{step}: {row.sum():.0f} GB" for step, row in moved.iterrows())
    figure.update_layout(
        title=title,
        barmode="stack",
        height=340,
        margin_b=BELOW,
        legend=LEGEND_BELOW,
        meta={"text": f"{moved.attrs['stamp']}. {words}.", "table": moved.round(1).to_html(border=0)},
    )
    return figure


def timing_strips(seconds: Mapping[str, Sequence[float]], title: str) -> go.Figure:
    """All measurements of several functions that were timed in turn: a line for each, over the rounds.

    Args:
        seconds: one for each round, by the function's name.
        title: of the figure.
    """
    figure = go.Figure()
    for (name, times), colour in zip(seconds.items(), COLOURS.values(), strict=False):
        milliseconds = [1e3 * time for time in times]
        figure.add_scatter(y=milliseconds, name=name, mode="lines+markers", line_color=colour)
    medians = ", ".join(f"{name} {1e3 * statistics.median(times):.1f} ms" for name, times in seconds.items())
    axes = dict(xaxis_title="round", yaxis=dict(title="milliseconds", rangemode="tozero"))
    return figure.update_layout(title=title, **axes, height=340, meta={"text": f"Times by round. Medians: {medians}."})


def roofline_figure(costs: pandas.DataFrame, flops_per_s: float, bytes_per_s: float, title: str) -> go.Figure:
    """FLOP/s against FLOP per byte on logarithmic axes, a point for each network, under the roof of the two rates.

    Left of the bend memory is the limit, and right of it arithmetic is.

    Args:
        costs: from `labkit.simulate.network_costs`.
        flops_per_s, bytes_per_s: the highest rates of this device. See `labkit.measure.roofline`.
        title: of the figure.
    """
    bend = flops_per_s / bytes_per_s
    ends = min(costs["flop_per_byte"].min(), bend) / 2, max(costs["flop_per_byte"].max(), bend) * 2
    roof = [flop / roofline_seconds(flop, 1, flops_per_s, bytes_per_s) / 1e9 for flop in (ends[0], bend, ends[1])]
    figure = go.Figure()
    figure.add_scatter(
        **dict(x=[ends[0], bend, ends[1]], y=roof, mode="lines", name="the roof", line=dict(color=UNUSED, width=3)),
        hovertemplate="at most %{y:.3g} GFLOP/s at %{x:.3g} FLOP a byte<extra></extra>",
    )
    told = []
    for (name, row), colour, symbol in zip(costs.iterrows(), cycle(LINES), cycle(SYMBOLS), strict=False):
        reached = row["flops"] / row["median_s"] / 1e9
        least = roofline_seconds(row["flops"], row["bytes_moved"], flops_per_s, bytes_per_s)
        told.append(
            f"{name}: {reached:.3g} GFLOP/s at {row['flop_per_byte']:.3g} FLOP a byte, "
            f"{least / row['median_s']:.0%} of the roof"
        )
        figure.add_scatter(
            **dict(x=[row["flop_per_byte"]], y=[reached], mode="markers", name=html.escape(name)),
            marker=dict(color=colour, symbol=symbol, size=13),
            hovertemplate=f"{html.escape(told[-1])}<extra></extra>",
        )
    figure.add_annotation(
        x=np.log10(bend), y=np.log10(roof[1]), text=f"{bend:.1f} FLOP a byte", yshift=14, showarrow=False
    )
    figure.update_xaxes(title="FLOP per byte moved at least (logarithmic)", type="log", tickvals=TICKS)
    figure.update_yaxes(title="GFLOP/s (logarithmic)", type="log", tickvals=TICKS)
    stamp = costs.attrs["stamp"]
    on = f"{describe(stamp)}, batch of shape {tuple(stamp['batch_shape'])}"
    return figure.update_layout(
        title=f"{html.escape(title)}<br><sub>{html.escape(on)}</sub>",
        height=440,
        meta={
            "text": f"{title}. The roof rises with {bytes_per_s / 1e9:.3g} GB/s up to {bend:.1f} FLOP a byte; from "
            f"there on it is flat at {flops_per_s / 1e9:.3g} GFLOP/s. {'; '.join(told)}. {on}."
        },
    )
