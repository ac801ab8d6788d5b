"""Figures of the first lessons: sizes of networks, and repeated timings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.style import COLOURS


def size_bars(sizes: Mapping[str, tuple[int, int]]) -> go.Figure:
    """Parameters beside work: for each network its parameters and the FLOPs of a forward pass.

    Args:
        sizes: by the network's name, from `labkit.measure.count`.
    """
    figure = make_subplots(cols=2, subplot_titles=("parameters, millions", "one forward pass, GFLOP"))
    for column, (unit, colour) in enumerate(((1e6, COLOURS["G"]), (1e9, COLOURS["D"])), start=1):
        values = [size[column - 1] / unit for size in sizes.values()]
        figure.add_bar(
            y=list(sizes), x=values, orientation="h", marker_color=colour, texttemplate="%{x:.1f}", row=1, col=column
        )
    described = (f"{name}: {p / 1e6:.1f} million parameters, {f / 1e9:.1f} GFLOP" for name, (p, f) in sizes.items())
    figure.update_yaxes(autorange="reversed").update_yaxes(showticklabels=False, col=2)
    figure.update_layout(
        title="Parameters are not work", showlegend=False, height=320, meta={"text": "; ".join(described) + "."}
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
    figure.update_layout(
        title=title,
        xaxis_title="round",
        yaxis=dict(title="milliseconds", rangemode="tozero"),
        height=340,
        meta={"text": f"Times by round. Medians: {medians}."},
    )
    return figure
