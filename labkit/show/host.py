"""What the host did, also of traces recorded on a CPU: figures of one recording or of several side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from labkit.show.figures import HOST, UNUSED, range_look
from labkit.show.recordings import Traces, add_bars, each_rank, escaped, finish, joined, look, percent, ranking
from labkit.traces.trace import Trace

HOSTS = {"operator": UNUSED, "CUDA call": HOST}


def operators_figure(traces: Traces, top: int = 12) -> go.Figure:
    """The operators and CUDA calls in which the host spent most time of its own; of a CPU's traces as well."""
    table = joined(traces, Trace.operators)
    hover = [
        f"{escaped(row.name)}<br>{row.recording}: {row.count:,} times, {row.self_us:,.1f} µs of its own, "
        f"{row.total_us:,.1f} µs with what it called, {percent(row.share_of_self)} of all own times"
        for row in table.itertuples(index=False)
    ]
    table = table.assign(value=table["self_us"] / 1e3, share=table["share_of_self"], hover=hover)
    return ranking(table, traces, top, HOSTS, "Operators by their own time on the host", "own time, milliseconds")


def ranges_figure(traces: Traces) -> go.Figure:
    """Time on the host in labkit's ranges, on average of a step; of a CPU's traces as well.

    On a GPU this is the time to launch the work of a range, not to do it. A range within another counts in both.
    """
    table = joined(traces, Trace.ranges)
    recordings = list(each_rank(traces))
    figure = go.Figure()
    for name, rows in table.groupby("range", sort=False):
        places = rows["recording"].map(recordings.index)
        hover = [f"{row.recording}: {_ran(row)}" for row in rows.itertuples()]
        add_bars(figure, places, rows["us_per_step"] / 1e3, hover, name=escaped(name), marker=look(*range_look(name)))
    words = [
        f"{name}: " + ("; ".join(map(_ran, rows.itertuples())) or "no range of labkit in the trace")
        for name, rows in ((name, table[table["recording"] == name]) for name in recordings)
    ]
    without = set(recordings) - set(table["recording"])
    labels = [f"{name}<br>(no range of labkit)" if name in without else name for name in recordings]
    figure.update_yaxes(tickvals=list(range(len(recordings))), ticktext=labels)
    figure.update_yaxes(range=[len(recordings) - 0.5, -0.5])
    figure.update_xaxes(title="milliseconds a step, on the host", tickformat=",", rangemode="tozero")
    figure.update_layout(barmode="stack", height=280 + 45 * len(recordings))
    return finish(figure, "Time of the host by range, of a step on average", traces, words, reverse=False)


def _ran(row: Any) -> str:
    a_step = "an unknown time" if np.isnan(row.us_per_step) else f"{row.us_per_step:,.1f} µs"
    return f"{escaped(row.range)} {a_step} a step; {row.count:,} times, {row.mean_us:,.1f} µs on average"
