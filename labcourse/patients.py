"""Recordings to diagnose: one at a glance, and several beside each other, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import pandas
import plotly.express as px
import plotly.graph_objects as go

from labtrace import show
from labtrace.trace import Trace

EARLY = 0.25  # of the kernels


def at_a_glance(trace: Trace) -> tuple[float, float, float, pandas.DataFrame]:
    """What the exercises `diagnose` and `diagnose_recorded` are given of a recording of one rank.

    Returns:
        The shares (0 to 1) of the wall time in which the GPU was idle, and in which it only communicated; the share of
        the idle time that passed before a quarter of the kernels had begun; and `Trace.gaps`, all of them.

    Raises:
        TraceError: there is no GPU activity.
    """
    idle = trace.temporal().set_index("part").loc["idle", "share_of_wall"]
    exposed = trace.communication()["share_of_wall"].item()
    gaps = trace.gaps(1_000_000)
    (rank,) = trace.ranks.values()
    early = gaps["begin_us"] < rank.kernels["begin"].quantile(EARLY)
    first = gaps.loc[early, "us"].sum() / gaps["us"].sum()
    return idle, exposed, first, gaps[["us", "cause", "range_at_begin"]]


def steps_figure(traces: Mapping[str, Trace]) -> go.Figure:
    """The wall time of each step, a bar for each recording, all with as many steps.

    Args:
        traces: by name, of one rank each.
    """
    parts = {name: trace.temporal(by="step").query("part == 'wall'") for name, trace in traces.items()}
    walls = pandas.DataFrame({name: (table["us"] / 1e3).tolist() for name, table in parts.items()})
    walls.index = pandas.RangeIndex(1, len(walls) + 1, name="step")
    stamps = "; ".join(f"{name}: {show.stamp_text(trace)}" for name, trace in traces.items())
    title, named = "The wall time of each step", {"value": "milliseconds", "variable": ""}
    figure = px.bar(walls, barmode="group", pattern_shape="variable", labels=named, title=f"{title}<br><sub>{stamps}")
    medians = ", ".join(f"{name} {median:.0f} ms" for name, median in walls.median().items())
    words = {"text": f"{title}. Medians: {medians}.", "table": walls.round(1).to_html(border=0)}
    return figure.update_layout(legend=dict(orientation="h", y=1.02, yanchor="bottom"), margin_t=110, meta=words)
