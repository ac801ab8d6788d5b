"""The parts that all figures of traces share: tables side by side, bars of a table, and title, stamps and words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pandas
import plotly.graph_objects as go

from labtrace.errors import ByRank, LabError
from labtrace.events.rank import Rank
from labtrace.events.reading import entry
from labtrace.show.style import ABOVE, BELOW, CLEAR, EDGE, escaped, mark_simulated, panels, shortened, text_on
from labtrace.trace import Trace

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

Recording = Any  # a Trace, the path of one or of a folder with one of each rank, or HTA's TraceAnalysis
Traces = Recording | Mapping[str, Recording]
ANALYSES: WeakKeyDictionary[Trace, TraceAnalysis] = WeakKeyDictionary()  # HTA's, of those that it has read
Looks = Mapping[str, tuple[str, str, str]]  # of a series of bars: its name in the legend, colour and hatching
DRAWING = ["rank", "panel", "place", "series", "value", "begin", "text", "mark"]  # columns that say how to draw a row

TITLE_CHARACTERS, STAMP_CHARACTERS = 56, 78  # that fit into a line of a narrow figure
NUMBER = re.compile(r"(?<![^ (])\d+(?:[.,]\d+)*")  # in a sentence or a table, but not in a name
LINE = 20  # pixels for a further line above the panels


def by_name(traces: Traces) -> dict[str, Trace]:
    """Traces by name. A single trace is named after its file.

    Args:
        traces: a `labtrace.Trace`, the path of a trace or of a folder with one of each rank, HTA's `TraceAnalysis`,
            or several of these by name.

    Raises:
        LabError: there is none, or something else.
        TraceError: a path holds no trace that can be read.
    """
    if isinstance(traces, Mapping) and traces:
        return {str(name): _opened(one) for name, one in traces.items()}
    trace = _opened(traces)
    return {next(iter(trace.ranks.values())).recording.file.name: trace}


def _opened(recording: Recording) -> Trace:
    if isinstance(recording, Trace):
        return recording
    if isinstance(recording, Path | str):
        return Trace(recording)
    if type(recording).__name__ == "TraceAnalysis":  # HTA need not be installed
        files = {number: Trace(file) for number, file in recording.t.trace_files.items()}
        trace = next(iter(files.values()))
        trace.ranks = ByRank({number: next(iter(one.ranks.values())) for number, one in sorted(files.items())})
        ANALYSES[trace] = recording
        return trace
    raise LabError(
        f"{recording!r:.80} is no trace: give a labtrace.Trace, the path of a trace or of a folder of them, or several "
        "of these by name: {'mine': labtrace.Trace(path)}."
    )


def rank_names(name: str, trace: Trace) -> dict[int, str]:
    """The name of each rank of a trace in figures: the trace's name and, if it has several ranks, the rank."""
    several = len(trace.ranks) > 1
    return {rank: f"{name}, rank {rank}" if several else name for rank in trace.ranks}


def each_rank(traces: Traces) -> dict[str, Rank]:
    """All ranks of all traces, by their names in figures."""
    return {
        shown: trace.ranks[rank]
        for name, trace in by_name(traces).items()
        for rank, shown in rank_names(name, trace).items()
    }


def joined(traces: Traces, of_trace: Callable[[Trace], pandas.DataFrame]) -> pandas.DataFrame:
    """The tables of all traces below one another, with the rank's name in figures in the first column, `recording`."""
    tables = []
    for name, trace in by_name(traces).items():
        table = of_trace(trace)
        table.insert(0, "recording", table["rank"].map(rank_names(name, trace)))
        tables.append(table)
    return pandas.concat(tables, ignore_index=True)


def bars(table: pandas.DataFrame, looks: Looks, unit: str = "") -> go.Figure:
    """Horizontal bars, a bar for each row of a table. The other columns of the row are shown at the pointer.

    | column | meaning |
    |---|---|
    | value | the bar's length |
    | series | one of `looks`. A row without it keeps a place free |
    | place | the label on the y axis |
    | panel | if there are several |
    | begin | where bars begin that do not begin at 0 |
    | text | the text on the bar |

    Args:
        table: with these columns. It may lack the last three.
        looks: of the series, in the legend's order. The legend leaves those out whose bars are all 0.
        unit: title of the x axis.
    """
    table = table.assign(hover=_hover(table))
    table = table if "panel" in table else table.assign(panel="")
    places = {panel: list(dict.fromkeys(rows["place"])) for panel, rows in table.groupby("panel", sort=False)}
    figure = panels({panel: 30 + 32 * len(labels) for panel, labels in places.items()})
    in_legend = set()
    for number, (panel, labels) in enumerate(places.items(), start=1):
        of_panel = table[table["panel"] == panel]
        for series, (name, colour, pattern) in looks.items():
            rows = of_panel[of_panel["series"] == series]
            if rows.empty:
                continue
            new = bool(name) and series not in in_legend and bool(rows["value"].ne(0).any())
            figure.add_bar(
                **dict(y=list(rows["place"]), x=list(rows["value"]), orientation="h", row=number, col=1),
                **dict(hovertext=list(rows["hover"]), hoverinfo="text"),
                marker=dict(color=colour, line=EDGE, pattern=dict(shape=pattern, fgcolor="#333333", size=7)),
                **dict(name=name, legendgroup=series, showlegend=new),
                text=list(rows["text"]) if "text" in rows else None,
                insidetextfont_color=text_on(colour),
                base=list(rows["begin"]) if "begin" in rows else None,
            )
            if new:
                in_legend.add(series)
        axis = dict(type="category", categoryorder="array", categoryarray=labels, range=[len(labels) - 0.5, -0.5])
        figure.update_yaxes(**axis, row=number, col=1)
    figure.update_xaxes(tickformat=",", rangemode="tozero")
    drawn = table["panel"][table["series"].notna()]
    last = list(places).index(drawn.iloc[-1]) + 1 if len(drawn) else 1  # panels without bars have no axis
    figure.update_xaxes(title=unit, showticklabels=True, row=last, col=1)
    return figure.update_layout(barmode="stack")


def finish(
    figure: go.Figure, title: str, traces: Traces, table: pandas.DataFrame, notes: Sequence[str] = ()
) -> go.Figure:
    """Adds the title, the stamps of the traces under it, SIMULATED where it applies, and the text alternative.

    Args:
        figure: it is changed.
        title: of the figure.
        traces: a trace, or traces by name.
        table: the text alternative.
        notes: sentences about the table, for the text alternative.
    """
    stamps: dict[str, list[str]] = {}
    for name, trace in by_name(traces).items():
        stamps.setdefault(stamp_text(trace), []).append(name)
    stamp = "; ".join(f"{', '.join(names)}: {of_these}" for of_these, names in stamps.items())
    small = [f"<sub>{escaped(line)}</sub>" for line in textwrap.wrap(stamp, STAMP_CHARACTERS)]
    heading = [*textwrap.wrap(title, TITLE_CHARACTERS), *small]
    further = LINE * (len(heading) - 2)
    figure.update_yaxes(automargin=True, ticks="outside", ticklen=6, tickcolor=CLEAR)
    figure.update_layout(
        title=dict(text="<br>".join(heading), yref="container", y=1, yanchor="top", pad_t=28),
        height=figure.layout.height + further,
        margin=dict(t=ABOVE + further, b=20 if any(isinstance(one, go.Table) for one in figure.data) else BELOW),
        legend=dict(orientation="h", traceorder="normal", x=0, y=0, yref="container", yanchor="bottom"),
        meta={
            "text": f"{'. '.join([title, *notes])}. Stamps: {stamp}.",
            "table": readable(table).to_html(index=False, border=0),
        },
    )
    simulated = [name for name, trace in by_name(traces).items() if (trace.stamp or {}).get("SIMULATED")]
    if simulated or "SIMULATED" in title:
        everything = "SIMULATED" in title or len(simulated) == len(by_name(traces))
        mark_simulated(figure, whose="" if everything else ", ".join(simulated))
    return figure


def stamp_text(trace: Trace) -> str:
    """The device and the torch version a trace was recorded with and, if it is a part, its steps.

    Of a recording that others have published: its device and where it was published. Of a simulated one: the assumed
    microseconds of the host for each launch, and how far such times were from measured ones.
    """
    stamp = trace.stamp
    if stamp is None:
        device = next(iter(trace.ranks.values())).recording.device.replace("unknown GPU", "")
        where = f"{device}, not recorded by labkit".removeprefix(", ")
    elif "recorded_by" in stamp:
        where = f"{stamp['device']}, recorded by others, {stamp['source'].partition(',')[0]}"
    else:
        host_us = entry(stamp, "constants").get("host_us")
        host = f", host {host_us:g} µs a launch" if host_us else ""
        error = ", times {:g} to {:g} of measured ones".format(*stamp["of_measured"]) if "of_measured" in stamp else ""
        where = f"{stamp.get('device', 'device unknown')}{host}{error}, torch {stamp.get('torch', 'unknown')}"
    if trace.only_steps is None:
        return where
    first, last = trace.only_steps
    return f"{where}, only step {first}" if first == last else f"{where}, only steps {first} to {last}"


def readable(table: pandas.DataFrame) -> pandas.DataFrame:
    """A table as text, without the columns that only say how to draw it: shares in percent, and "n/a" for NaN."""
    columns = {}
    for name, values in table.drop(columns=DRAWING, errors="ignore").items():
        heading = re.sub(r"(^|_)us(?=_|$)", r"\1µs", str(name)).replace("_", " ")
        columns[heading] = [_as_text(str(name), value) for value in values]
    return pandas.DataFrame(columns)


def merged(texts: Iterable[str]) -> str:
    """Texts of the same wording as one, with the least and the largest of numbers that differ: "2.1 to 3.4 ms"."""
    texts = [*texts]
    numbers = zip(*map(NUMBER.findall, texts), strict=True)
    in_order = [sorted(each, key=lambda number: float(number.replace(",", ""))) for each in numbers]
    spans = iter(" to ".join(dict.fromkeys((each[0], each[-1]))) for each in in_order)
    return NUMBER.sub(lambda _: next(spans), texts[0])


def some_ranks(ranks: Iterable[int], trace: Trace) -> str:
    """Ranks of a trace in words: "Ranks 0, 1 and 3", or "All 8 ranks"."""
    *others, last = sorted(ranks)
    if others and len(others) + 1 == len(trace.ranks):
        return f"All {len(trace.ranks)} ranks"
    return f"Ranks {', '.join(map(str, others))} and {last}" if others else f"Rank {last}"


def _as_text(column: str, value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value).replace(" us", " µs")
    if pandas.isna(value):
        return "n/a"
    if "share" in column or re.search("_of_(wall|idle|busy|kernels)$|^cost_of_", column):
        return f"{value:.1%}"
    if column.startswith("times_faster"):
        return f"{value:.2f}"
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.05 else f"{value:,.1f}"  # a processor's TFLOP/s are no zeros
    return f"{value:,}"


def _hover(table: pandas.DataFrame) -> list[str]:
    """For each row its columns, one a line: name and value."""
    shown = readable(table)
    lines = [f"{name}: " + shown[name].map(lambda value: escaped(shortened(value, 90))) for name in shown]
    return list(map("<br>".join, zip(*lines, strict=True)))
