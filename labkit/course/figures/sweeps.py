"""SIMULATED steps over the speed of the host, and over the batch size."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import pandas
import plotly.graph_objects as go

from labkit.show.style import HOST, KERNEL, LEGEND_BELOW, LINES, UNUSED, WALL, mark_simulated, panels
from labkit.show.widgets import WIDE, controlled, slider, steps_slider
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.operator_replay import HOST_US, replay
from labkit.simulate.operators import Operator

LOOKS = (("solid", "circle"), ("dash", "square"), ("dot", "diamond"), ("dashdot", "cross"), ("longdash", "x"))
MEMORIES = {"6 GB": 6e9, "16 GB (T4)": 16e9, "24 GB": 24e9, "80 GB (A100, H100)": 80e9}
Batches = Mapping[int, tuple[Sequence[Operator], int]]  # by batch size, a step's operators and the bytes it holds


def host_figure(table: pandas.DataFrame, host_us: float) -> go.Figure:
    """The time of a step over the host's time for a launch, SIMULATED, a panel for each batch size.

    Where a line rises, the step is host bound. Where it is flat, the GPU's own work takes longer.

    Args:
        table: a row for each replay, with the columns batch (pictures), step (its name), host_us, wall_us,
            idle_share (0 to 1), launches.
        host_us: one of the table's, which is marked and put into words.
    """
    batches = list(table["batch"].unique())
    figure = panels({f"batch {batch}": 230 for batch in batches})
    for row, batch in enumerate(batches, start=1):
        steps = table[table["batch"] == batch].groupby("step", sort=False)
        for (name, points), (dash, symbol), colour in zip(steps, LOOKS, LINES, strict=False):
            figure.add_scatter(
                x=points["host_us"],
                y=points["wall_us"] / 1e3,
                **dict(name=html.escape(name), legendgroup=name, showlegend=row == 1, row=row, col=1),
                **dict(mode="lines+markers", line=dict(color=colour, dash=dash), marker=dict(symbol=symbol, size=8)),
                hovertext=[_in_words(point) for point in points.itertuples()],
                hoverinfo="text",
            )
    figure.update_yaxes(title="milliseconds", rangemode="tozero")
    figure.add_vline(x=host_us, line=dict(color=HOST, width=3))
    figure.update_xaxes(title="microseconds of the host for a launch", row=len(batches), col=1)
    words = [_in_words(point) for point in table[table["host_us"] == host_us].itertuples()]
    figure.update_layout(
        title=f"SIMULATED: time of a step; marked: {host_us:g} µs for a launch",
        legend=LEGEND_BELOW,
        margin=dict(b=110),
        meta={"text": f"SIMULATED time of a step. With {host_us:g} µs for a launch: {'; '.join(words)}."},
    )
    return mark_simulated(figure)


def host_widget(table: pandas.DataFrame) -> ipywidgets.VBox:
    """`host_figure` with a slider for the host's time."""
    launch = steps_slider("µs a launch", sorted(table["host_us"].unique()))
    return controlled(functools.partial(host_figure, table), {"host_us": launch})


def batch_figure(steps: Batches, device: str = "A100", host_us: float = HOST_US) -> go.Figure:
    """Speed, idle share and memory over the batch size. SIMULATED: read ratios and bends of the curves, not times.

    Args:
        steps: by batch size, the operators of a step from `labkit.simulate.step_operators` and the bytes that it
            holds, from `labkit.simulate.step_memory`. Speeds are divided by that of the first batch size.
        device: whose roofline, one of `labkit.simulate.ROOFLINES`.
        host_us: microseconds of host time for every launch: an assumption.
    """
    batches = list(steps)
    played = [replay(list(run), host_us, ROOFLINES[device], steps=1).timeline for run, _ in steps.values()]
    speed = [batch / timeline.wall for batch, timeline in zip(batches, played, strict=True)]
    speed = [value / speed[0] for value in speed]
    idle = [timeline.idle_share for timeline in played]
    held = [size / 1e9 for _, size in steps.values()]
    drawn = {
        f"images a second, divided by those at batch {batches[0]}": (speed, KERNEL, ".2f"),
        "idle, share of the wall time": (idle, HOST, ".0%"),
        "memory that a step holds, GB (counted)": (held, WALL, ".1f"),
    }
    figure = panels(dict.fromkeys(drawn, 150))
    for row, (values, colour, unit) in enumerate(drawn.values(), 1):
        look = dict(mode="lines+markers", line_color=colour, showlegend=False)
        hover = f"batch %{{x}}: %{{y:{unit}}}<extra></extra>"
        figure.add_scatter(x=batches, y=values, **look, hovertemplate=hover, row=row, col=1)
    for number, (name, size) in enumerate(MEMORIES.items()):
        line = dict(color=UNUSED, dash="dot", width=1)
        side = "top right" if number % 2 else "top left"  # neighbours would overlap
        figure.add_hline(y=size / 1e9, line=line, annotation_text=name, annotation_position=side, row=3, col=1)
    figure.update_xaxes(type="log", tickvals=batches)
    figure.update_xaxes(title="batch size, pictures of each domain", row=3, col=1)
    figure.update_yaxes(rangemode="tozero").update_yaxes(tickformat=".0%", range=[0, 1], row=2, col=1)
    figure.update_yaxes(range=[0, 90], row=3, col=1)
    told = "; ".join(
        f"batch {batch}: {fast:.2f} times the images a second of batch {batches[0]}, idle {share:.0%}, {size:.1f} GB"
        for batch, fast, share, size in zip(batches, speed, idle, held, strict=True)
    )
    where = f"{device}, {host_us:g} µs a launch"
    figure.update_layout(
        title=f"SIMULATED: the effect of a larger batch<br><sub>{where}</sub>",
        meta={"text": f"SIMULATED, {where}. {told}."},
    )
    return mark_simulated(figure, panels=2)


def batch_widget(steps: Mapping[str, Batches]) -> ipywidgets.VBox:
    """`batch_figure` with a choice of model and picture size (by name), of device, and of the host's speed."""
    host = slider("host, µs a launch", HOST_US, 1, 200, 1)
    host.continuous_update = False  # each redraw plays all steps again
    controls = {
        "steps": ipywidgets.Dropdown(options=list(steps.items()), description="step", **WIDE),
        "device": ipywidgets.Dropdown(options=list(ROOFLINES), value="A100", description="device", **WIDE),
        "host_us": host,
    }
    return controlled(batch_figure, controls)


def _in_words(point: Any) -> str:
    return (
        f"batch {point.batch}, {html.escape(point.step)}: {point.wall_us / 1e3:,.1f} ms, "
        f"GPU idle for {point.idle_share:.0%} of it, {point.launches:,} launches"
    )
