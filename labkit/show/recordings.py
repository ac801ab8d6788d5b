"""What the figures of traces share: recordings by name, bars, and what every such figure says."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.traces.tables import Trace

Traces = Trace | Mapping[str, Trace]
QUEUE_POINTS = 2000


def named(traces: Traces) -> dict[str, Trace]:
    """Traces by name; one alone has its file's."""
    if isinstance(traces, Trace):
        return {next(iter(traces.ranks.values())).recording.file.name: traces}
    return dict(traces)


def joined(traces: Traces, of_trace: Callable[[Trace], pandas.DataFrame]) -> pandas.DataFrame:
    """A table of each trace, below one another; the column `recording` has the trace's name, and rank if several."""
    tables = []
    for name, trace in named(traces).items():
        table = of_trace(trace)
        many = len(trace.ranks) > 1
        tables.append(table.assign(recording=[f"{name}, rank {rank}" if many else name for rank in table["rank"]]))
    return pandas.concat(tables, ignore_index=True)


def add_bars(figure: go.Figure, y: Any, x: Any, hover: Iterable[str], **arguments: Any) -> None:
    """Adds horizontal bars with a text each for the pointer."""
    text = list(hover)
    figure.add_bar(y=list(y), x=list(x), orientation="h", hovertext=text, hoverinfo="text", **arguments)


def look(colour: str, pattern: str = "") -> dict[str, Any]:
    """A bar's colour and hatching, with a thin edge by which pale bars are seen on white."""
    edge = dict(color="#555555", width=0.5)
    return dict(color=colour, line=edge, pattern=dict(shape=pattern, fgcolor="#333333", size=7))


def finish(
    figure: go.Figure, title: str, traces: Traces, words: Iterable[str], note: str = "", reverse: bool = True
) -> go.Figure:
    """Adds what every figure has: the title, under it what was recorded on what, and the whole in words."""
    stamps: dict[str, list[str]] = {}
    for name, trace in named(traces).items():
        stamps.setdefault(stamped(trace), []).append(name)
    stamp = "; ".join(f"{', '.join(names)}: {of_these}" for of_these, names in stamps.items())
    if reverse:
        figure.update_yaxes(autorange="reversed")
    figure.update_yaxes(automargin=True, ticks="outside", ticklen=6, tickcolor="rgba(0, 0, 0, 0)")
    figure.update_layout(
        # Not Plotly's subtitle, which a FigureWidget draws over the title.
        title=dict(text=f"{title}<br><sub>{html.escape(stamp)}</sub>", yref="container", y=0.96, yanchor="top"),
        margin=dict(t=100, b=90),
        legend=dict(orientation="h", traceorder="normal", x=0, y=0.01, yref="container", yanchor="bottom"),
        meta={"text": f"{title}. {'. '.join(words)}.{note} Recorded on: {stamp}."},
    )
    return figure


def stamped(trace: Trace) -> str:
    """What a trace was recorded on, in a few words."""
    stamp = trace.stamp
    if stamp is None:
        return "not recorded by labkit"
    return f"{stamp.get('device', 'device unknown')}, torch {stamp.get('torch', 'unknown')}"


def thin_steps(values: np.ndarray, points: int = QUEUE_POINTS) -> np.ndarray:
    """Which of `values` to draw: at most `points`, the least and the largest of every stretch among them."""
    if len(values) <= points:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), points // 2)
    extremes = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(extremes)


def shortened(name: str, length: int = 44) -> str:
    """The begin of a long name, without what most kernels' names have in common."""
    name = re.sub(r"^void |\(anonymous namespace\)::|at::native::", "", name)
    return name if len(name) <= length else f"{name[: length - 2]} …"


def percent(share: float) -> str:
    """A share in words; of nothing, it is not known."""
    return "an unknown share" if np.isnan(share) else f"{share:.1%}"


def panels(recordings: list[str]) -> go.Figure:
    """One panel a recording, below one another, on one scale of x; under their names if they are several."""
    several = len(recordings) > 1
    titles, spacing = (recordings, 0.3 / len(recordings)) if several else (None, 0.0)
    return make_subplots(len(recordings), shared_xaxes=True, subplot_titles=titles, vertical_spacing=spacing)
