"""Steps by how long the host needs for a launch, SIMULATED: where launches decide, and where they no longer do."""

from __future__ import annotations

import functools
import html

import ipywidgets
import pandas
import plotly.graph_objects as go

from labkit.show.figures import HOST, WALL
from labkit.show.recordings import panels
from labkit.show.widgets import controlled

LOOKS = (("solid", "circle"), ("dash", "square"), ("dot", "diamond"), ("dashdot", "cross"), ("longdash", "x"))


def host_figure(table: pandas.DataFrame, host_us: float) -> go.Figure:
    """Microseconds of a step over the host's microseconds for a launch, SIMULATED, a panel for each batch size.

    Where a line rises, the step is host bound; where it is flat, the GPU's own work takes longer.

    Args:
        table: one row for each replay, with the columns batch (pictures), step (its name), host_us, wall_us,
            idle_share (0 to 1), launches.
        host_us: one of the table's, which is marked and put into words.
    """
    batches = list(table["batch"].unique())
    figure = panels({f"batch {batch}": 230 for batch in batches})
    for row, batch in enumerate(batches, start=1):
        ours = table[table["batch"] == batch]
        for (name, points), (dash, symbol) in zip(ours.groupby("step", sort=False), LOOKS, strict=False):
            hover = [_in_words(point) for point in points.itertuples()]
            figure.add_scatter(
                x=points["host_us"],
                y=points["wall_us"] / 1e3,
                **dict(name=html.escape(name), legendgroup=name, showlegend=row == 1, row=row, col=1),
                **dict(mode="lines+markers", line=dict(color=WALL, dash=dash), marker=dict(symbol=symbol, size=7)),
                hovertext=hover,
                hoverinfo="text",
            )
        figure.update_yaxes(title="milliseconds", rangemode="tozero", row=row, col=1)
    figure.add_vline(x=host_us, line=dict(color=HOST, width=3))
    figure.update_xaxes(title="microseconds of the host for a launch", row=len(batches), col=1)
    words = [_in_words(point) for point in table[table["host_us"] == host_us].itertuples()]
    return figure.update_layout(
        title=f"SIMULATED: time of a step; marked: {host_us:g} µs for a launch",
        legend=dict(orientation="h", x=0, y=0, yref="container", yanchor="bottom"),
        margin=dict(b=110),
        meta={"text": f"SIMULATED time of a step. With {host_us:g} µs for a launch: {'; '.join(words)}."},
    )


def host_widget(table: pandas.DataFrame) -> ipywidgets.VBox:
    """`host_figure`, with a slider for the host; below it the steps at the marked place, in words."""
    hosts = sorted(table["host_us"].unique())
    slider = ipywidgets.SelectionSlider(
        options=[(f"{host:g}", host) for host in hosts],
        value=hosts[len(hosts) // 2],
        description="µs a launch",
        continuous_update=False,
    )
    return controlled(functools.partial(host_figure, table), {"host_us": slider})


def _in_words(point: object) -> str:
    return (
        f"batch {point.batch}, {html.escape(point.step)}: {point.wall_us / 1e3:,.1f} ms, "
        f"GPU idle for {point.idle_share:.0%} of it, {point.launches:,} launches"
    )
