"""The launch queue over time, as the lessons draw it."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from labtrace.show.bars import Traces, finish, joined
from labtrace.show.style import FAINT, INK, WALL, panels, time_unit
from labtrace.trace import Trace

QUEUE_POINTS = 2000


def queue_figure(traces: Traces) -> go.Figure:
    """How many kernels were launched but not started, over time: a panel for each recording, as wide as all of it.

    Args:
        traces: a trace, or traces by name, as for `labtrace.show.trace`.
    """
    table = joined(traces, Trace.queue)
    recordings = table.groupby("recording", sort=False)
    figure = panels(dict.fromkeys(recordings.groups, 190))
    unit_us, unit = time_unit(table["time_us"].max())
    for number, (_, rows) in enumerate(recordings, start=1):
        stretches = rows.groupby(np.arange(len(rows)) * (QUEUE_POINTS // 2) // len(rows))["waiting"]
        shown = rows.loc[np.unique([stretches.idxmin(), stretches.idxmax()])]
        figure.add_scatter(
            **dict(x=shown["time_us"] / unit_us, y=shown["waiting"], row=number, col=1, showlegend=False),
            **dict(mode="lines", line=dict(shape="hv", color=WALL, width=1), fill="tozeroy", fillcolor=FAINT),
            hovertemplate=f"from %{{x:,.3f}} {unit} on, %{{y}} kernels wait<extra></extra>",
        )
        figure.add_hline(y=rows["mean"].iloc[0], line=dict(color=INK, dash="dash"), row=number, col=1)
    figure.update_yaxes(title="kernels waiting", rangemode="tozero")
    figure.update_xaxes(tickformat=",", rangemode="tozero", matches=None, showticklabels=True)
    thinned = recordings.size().max() > QUEUE_POINTS // 2
    thinning = f"; thinned to {QUEUE_POINTS:,} points, extremes kept" if thinned else ""
    figure.update_xaxes(title=f"{unit} since the first event{thinning}", row=len(recordings), col=1)
    table = recordings.agg(kernels_waiting_mean=("mean", "first"), kernels_waiting_most=("waiting", "max"))
    title = "Kernels launched, but not started (dashed: mean)"
    return finish(figure, title, traces, table.reset_index())
