"""What ran on the GPU, by kind, memory operation and name: figures of one recording or of several side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.figures import KERNEL, UNUSED
from labkit.show.recordings import (
    KINDS,
    Traces,
    add_bars,
    each_rank,
    escaped,
    finish,
    joined,
    look,
    panels,
    percent,
    ranking,
)
from labkit.traces.trace import Trace

MEMORY_SHARES = {"count": ("share of their number", UNUSED), "total_us": ("share of their time", KERNEL)}


def kernel_kinds_figure(traces: Traces) -> go.Figure:
    """Kernels and memory operations by kind: how long they took in all, beside how many there were."""
    table = joined(traces, lambda trace: trace.kernels(by="kind"))
    titles = ("sum of durations, milliseconds", "how many")
    figure, names = make_subplots(cols=2, shared_yaxes=True, subplot_titles=titles), table["recording"].unique()
    for kind, colour in KINDS.items():
        rows = table[table["kind"] == kind]
        hover = [f"{row.recording}: {_described(row, kind)}" for row in rows.itertuples()]
        for column, values in enumerate((rows["total_us"] / 1e3, rows["count"]), start=1):
            shown = dict(name=kind, legendgroup=kind, showlegend=column == 1, marker=look(colour))
            add_bars(figure, rows["recording"], values, hover, **shown, row=1, col=column)
    words = [
        f"{name}: " + "; ".join(_described(row, row.kind) for row in rows.itertuples())
        for name, rows in table.groupby("recording", sort=False)
    ]
    figure.update_xaxes(tickformat=",", rangemode="tozero")
    figure.update_layout(barmode="stack", height=260 + 45 * len(names))
    return finish(figure, "Kernels and memory operations by kind", traces, words)


def memory_figure(traces: Traces) -> go.Figure:
    """Copies and memsets by operation: share of their number beside share of their time.

    A large share of the memory operations may be a small one of the busy time, which stands over each panel.
    """
    table = joined(traces, lambda trace: trace.kernels(by="memory"))
    operations = {name: table[table["recording"] == name] for name in each_rank(traces)}
    notes = {name: _together(rows) for name, rows in operations.items()}
    figure, words = panels({name: 40 + 44 * len(rows) for name, rows in operations.items()}, notes), []
    for number, (name, rows) in enumerate(operations.items(), start=1):
        kinds = [f"{row.operation}, pageable" if row.pageable else row.operation for row in rows.itertuples()]
        described = [_described(row, kind) for row, kind in zip(rows.itertuples(), kinds, strict=True)]
        for column, (of_what, colour) in MEMORY_SHARES.items():
            shares = rows[column] / (rows[column].sum() or np.nan)
            hover = [f"{row}<br>{of_what}: {percent(value)}" for row, value in zip(described, shares, strict=True)]
            shown = dict(name=of_what, legendgroup=column, showlegend=number == 1, marker=look(colour))
            add_bars(figure, kinds, shares, hover, **shown, row=number, col=1)
        words.append(f"{name}, {notes[name]}" + "".join(f"; {row}" for row in described))
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    figure.update_xaxes(title="share of the memory operations", row=len(operations), col=1)
    figure.update_layout(barmode="group")
    return finish(figure, "Copies and memsets: share of their number beside share of their time", traces, words)


def top_kernels_figure(traces: Traces, top: int = 10) -> go.Figure:
    """The kernels and memory operations that took most time, all of one name together."""
    table = joined(traces, Trace.kernels)
    hover = [
        f"{escaped(row.name)}<br>{row.recording}: {_described(row, row.kind)}" for row in table.itertuples(index=False)
    ]
    table = table.assign(value=table["total_us"] / 1e3, share=table["share_of_busy"], hover=hover)
    return ranking(table, traces, top, KINDS, "Kernels that took most time", "sum of durations, milliseconds")


def _together(operations: pandas.DataFrame) -> str:
    """How many memory operations there were, and how long they took."""
    if operations.empty:
        return "no memory operations"
    count, us, share = operations[["count", "total_us", "share_of_busy"]].sum(min_count=1)
    return f"{count:,.0f} memory operations, {us:,.1f} µs in all, {percent(share)} of the busy time"


def _described(row: Any, kind: str) -> str:
    if not row.count:
        return f"{kind}: none"
    return (
        f"{kind}, {row.count:,} of them, {row.total_us:,.1f} µs in all, {row.mean_us:,.1f} µs on average, "
        f"{percent(row.share_of_busy)} of the busy time"
    )
