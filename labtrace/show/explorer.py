"""A widget to explore recordings: every view of one or all of them."""

from __future__ import annotations

import textwrap
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from labtrace.errors import LabError
from labtrace.show.bars import Traces, by_name
from labtrace.show.hta import TABLES
from labtrace.show.style import escaped
from labtrace.show.timeline import length_us
from labtrace.show.views import VIEWS, trace
from labtrace.show.widgets import WIDE, controlled

ALL = "all, side by side"


def trace_explorer(traces: Traces, view: str = "temporal") -> ipywidgets.VBox:
    """A menu of recordings and a menu of views, above the figure.

    You can look at one recording or at all; `Trace.steps` makes a part of one. The timeline has a slider for its
    interval, and HTA's tables have a menu. Where a view needs events that are missing, the figure names them.

    Args:
        traces: a trace, or traces by name, as `labtrace.show.trace` takes them.
        view: the one that is shown first.

    Raises:
        LabError: there is no trace.
    """
    recordings = by_name(traces)
    times = dict(readout_format=",.0f", continuous_update=False, **WIDE)
    controls = {
        "recording": ipywidgets.Dropdown(options=[*recordings, ALL], description="recording", **WIDE),
        "view": ipywidgets.Dropdown(options=list(VIEWS), value=view, description="figure", **WIDE),
        "table": ipywidgets.Dropdown(options=list(TABLES), description="HTA's table", **WIDE),
        "interval": ipywidgets.FloatRangeSlider(value=(0, 10), description="percent of the time", **times),
    }

    def draw(recording: str, view: str, table: str, interval: tuple[float, float]) -> go.Figure:
        for name, its_view in (("table", "hta"), ("interval", "timeline")):
            controls[name].layout.display = "" if its_view == view else "none"
        settings: dict[str, Any] = {"table": table} if view == "hta" else {}
        chosen = {name: one for name, one in recordings.items() if recording in (name, ALL)}
        try:
            if view == "timeline":
                percent_us = length_us(chosen) / 100
                settings = dict(begin_us=interval[0] * percent_us, end_us=interval[1] * percent_us)
            return trace(chosen, view, **settings)
        except LabError as error:  # events are missing, or it cannot be played again
            title = "<br>".join(map(escaped, textwrap.wrap(str(error), 80)))
            return go.Figure(layout=dict(title=title, meta={"text": str(error)}))

    return controlled(draw, controls)
