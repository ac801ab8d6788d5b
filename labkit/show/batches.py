"""What a larger batch brings, SIMULATED: speed, idle time, and the memory that ends it."""

from __future__ import annotations

from collections.abc import Mapping

import ipywidgets
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.figures import HOST, KERNEL, UNUSED, WALL
from labkit.show.widgets import controlled
from labkit.simulate.batches import BatchSizes
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.replay import replay

BATCHES = (1, 2, 4, 8, 16, 32)
MEMORIES = {"6 GB": 6e9, "16 GB (T4)": 16e9, "24 GB": 24e9, "80 GB (A100, H100)": 80e9}


def batch_figure(steps: BatchSizes, device: str = "A100", host_us: float = 40.0) -> go.Figure:
    """Speed, idle share and memory at batch 1 to 32. SIMULATED: read ratios and where curves bend, not times.

    Args:
        steps: from `labkit.simulate.any_batch_size`.
        device: whose roofline, one of `labkit.simulate.ROOFLINES`.
        host_us: microseconds of host time for every launch: an assumption.
    """
    played = [replay(steps.operators(batch), host_us, ROOFLINES[device], steps=1).timeline for batch in BATCHES]
    speed = [batch / timeline.wall for batch, timeline in zip(BATCHES, played, strict=True)]
    speed = [value / speed[0] for value in speed]
    idle = [timeline.idle_share for timeline in played]
    held = [steps.bytes_held(batch) / 1e9 for batch in BATCHES]
    titles = (
        "images a second, times those at batch 1",
        "idle, of the wall time",
        "memory that a step holds, GB (counted)",
    )
    figure = make_subplots(rows=3, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.1)
    for row, (values, colour, unit) in enumerate(((speed, KERNEL, ".2f"), (idle, HOST, ".0%"), (held, WALL, ".1f")), 1):
        hover = f"batch %{{x}}: %{{y:{unit}}}<extra></extra>"
        look = dict(mode="lines+markers", line_color=colour, showlegend=False)
        figure.add_scatter(x=BATCHES, y=values, **look, hovertemplate=hover, row=row, col=1)
    for number, (name, size) in enumerate(MEMORIES.items()):
        line = dict(color=UNUSED, dash="dot", width=1)
        side = "top right" if number % 2 else "top left"  # neighbours would overlap
        figure.add_hline(y=size / 1e9, line=line, annotation_text=name, annotation_position=side, row=3, col=1)
    figure.update_xaxes(type="log", tickvals=BATCHES, range=[-0.1, 1.6])
    figure.update_xaxes(title="batch size, pictures of either domain", row=3, col=1)
    figure.update_yaxes(rangemode="tozero").update_yaxes(tickformat=".0%", range=[0, 1], row=2, col=1)
    figure.update_yaxes(range=[0, 90], row=3, col=1)
    told = "; ".join(
        f"batch {batch}: {fast:.2f} times as many images a second as batch 1, idle {share:.0%}, {size:.1f} GB"
        for batch, fast, share, size in zip(BATCHES, speed, idle, held, strict=True)
    )
    where = f"{steps.size} x {steps.size} pixels, {device}, {host_us:g} µs a launch"
    figure.update_layout(
        title=f"SIMULATED: what a larger batch brings<br><sub>{where}</sub>",
        height=760,
        margin=dict(t=110),
        meta={"text": f"SIMULATED, {where}. {told}."},
    )
    return figure


def batch_widget(steps: Mapping[str, BatchSizes]) -> ipywidgets.VBox:
    """`batch_figure`, with a choice of model and picture size (by name), of device, and of the host's speed."""
    wide = dict(style={"description_width": "130px"}, continuous_update=False)
    controls = {
        "steps": ipywidgets.Dropdown(options=list(steps.items()), description="step"),
        "device": ipywidgets.Dropdown(options=list(ROOFLINES), value="A100", description="device"),
        "host_us": ipywidgets.FloatSlider(40, min=2, max=200, step=2, description="host, µs a launch", **wide),
    }
    return controlled(batch_figure, controls)
