"""What the figures of traces share: recordings by name, colours, bars, and what every such figure says."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.figures import KERNEL
from labkit.traces.rank import Rank
from labkit.traces.trace import Trace

Traces = Trace | Mapping[str, Trace]
# Okabe and Ito's yellow, which nothing else has, and a wine of Paul Tol's that goes with them.
KINDS = {"compute": KERNEL, "memory": "#F0E442", "communication": "#882255"}
ABOVE, BETWEEN, BELOW = 100, 75, 90  # pixels: title, names of panels and their ticks, legend
PATTERNS = ("", "/", ".", "x", "-", "+")  # of recordings, where colours have another meaning


def named(traces: Traces) -> dict[str, Trace]:
    """Traces by name; one alone has its file's."""
    if isinstance(traces, Trace):
        return {next(iter(traces.ranks.values())).recording.file.name: traces}
    return dict(traces)


def rank_names(name: str, trace: Trace) -> dict[int, str]:
    """What figures call each rank of a trace: the trace's name, and the rank if there are several. HTML is escaped."""
    several = len(trace.ranks) > 1
    return {rank: escaped(f"{name}, rank {rank}" if several else name) for rank in trace.ranks}


def each_rank(traces: Traces) -> dict[str, Rank]:
    """All ranks of all traces, by what figures call them."""
    return {
        shown: trace.ranks[rank]
        for name, trace in named(traces).items()
        for rank, shown in rank_names(name, trace).items()
    }


def joined(traces: Traces, of_trace: Callable[[Trace], pandas.DataFrame]) -> pandas.DataFrame:
    """A table of each trace, below one another; the column `recording` has what figures call the row's rank."""
    tables = []
    for name, trace in named(traces).items():
        table = of_trace(trace)
        tables.append(table.assign(recording=table["rank"].map(rank_names(name, trace))))
    return pandas.concat(tables, ignore_index=True)


def add_bars(figure: go.Figure, y: Any, x: Any, hover: Iterable[str], **arguments: Any) -> None:
    """Adds horizontal bars with a text each for the pointer."""
    text = list(hover)
    figure.add_bar(y=list(y), x=list(x), orientation="h", hovertext=text, hoverinfo="text", **arguments)


def look(colour: str, pattern: str = "") -> dict[str, Any]:
    """A bar's colour and hatching, with a thin edge by which pale bars are seen on white."""
    edge = dict(color="#555555", width=0.5)
    return dict(color=colour, line=edge, pattern=dict(shape=pattern, fgcolor="#333333", size=7))


def panels(heights: Mapping[str, float], notes: Mapping[str, str] | None = None, **arguments: Any) -> go.Figure:
    """One panel a recording, below one another, on one scale of x; under their names if they are several.

    `heights` are the panels', in pixels, and `notes` what to say over each; `arguments` go to `make_subplots`.
    """
    titles = {name: name if len(heights) > 1 else "" for name in heights}
    if notes:
        titles = {name: ": ".join(filter(None, (title, notes[name]))) for name, title in titles.items()}
    height = sum(heights.values()) + BETWEEN * (len(heights) - 1)
    figure = make_subplots(
        len(heights),
        row_heights=list(heights.values()),
        vertical_spacing=BETWEEN / height if len(heights) > 1 else 0.0,
        subplot_titles=list(titles.values()),
        **{"shared_xaxes": True, **arguments},
    )
    return figure.update_layout(height=height + ABOVE + BELOW).update_annotations(font_size=13)


def ranking(
    table: pandas.DataFrame, traces: Traces, top: int, colours: Mapping[str, str], title: str, unit: str
) -> go.Figure:
    """The names whose `value` is largest over all recordings, with their `kind`, `share`, and `hover`."""
    names = list(table.groupby("name")["value"].sum().nlargest(top).index)
    table = table[table["name"].isin(names)]
    place = {name: position for position, name in enumerate(names)}
    recordings = list(table["recording"].unique())
    figure = go.Figure()
    for (recording, kind), rows in table.groupby(["recording", "kind"], sort=False):
        number = recordings.index(recording)
        pattern = PATTERNS[number % len(PATTERNS)]
        shown = dict(name=f"{recording}: {kind}" if len(recordings) > 1 else kind, offsetgroup=str(number))
        marker = look(colours[kind], pattern)
        add_bars(figure, rows["name"].map(place), rows["value"], rows["hover"], marker=marker, **shown)
    words = [
        f"{recording}: "
        + "; ".join(f"{shortened(row.name)} {row.value:,.2f} ({percent(row.share)})" for row in rows.itertuples())
        for recording, rows in table.groupby("recording", sort=False)
    ]
    figure.update_yaxes(tickvals=list(place.values()), ticktext=[escaped(shortened(name)) for name in names])
    figure.update_xaxes(title=unit, tickformat=",", rangemode="tozero")
    figure.update_layout(barmode="group", height=220 + (14 + 14 * len(recordings)) * len(names))
    return finish(figure, f"{title}: the first {len(names)}", traces, words, f" In {unit}.")


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
        title=dict(text=f"{title}<br><sub>{escaped(stamp)}</sub>", yref="container", y=1, yanchor="top", pad_t=16),
        margin=dict(t=ABOVE, b=BELOW),
        legend=dict(orientation="h", traceorder="normal", x=0, y=0, yref="container", yanchor="bottom"),
        meta={"text": f"{title}. {html.unescape('. '.join(words))}.{note} Stamps: {stamp}."},
    )
    return figure


def stamped(trace: Trace) -> str:
    """What a trace was recorded on, in a few words, and which of its steps these are."""
    stamp = trace.stamp
    if stamp is None:
        what = "not recorded by labkit"
    else:
        what = f"{stamp.get('device', 'device unknown')}, torch {stamp.get('torch', 'unknown')}"
    if trace.only_steps is None:
        return what
    first, last = trace.only_steps
    return f"{what}, only step {first}" if first == last else f"{what}, only steps {first} to {last}"


def escaped(name: str) -> str:
    """A name as Plotly shows it literally."""
    return html.escape(name, quote=False)


def shortened(name: str, length: int = 44) -> str:
    """The begin of a long name, without what most kernels' names have in common."""
    name = re.sub(r"^void |\(anonymous namespace\)::|at::native::", "", name)
    return name if len(name) <= length else f"{name[: length - 2]} …"


def percent(share: float) -> str:
    """A share in words; of nothing, it is not known."""
    return "an unknown share" if np.isnan(share) else f"{share:.1%}"
