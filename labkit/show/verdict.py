"""What bounds each recording, as a table to look at."""

from __future__ import annotations

from math import ceil

import numpy as np
import plotly.graph_objects as go

from labkit.show.recordings import ABOVE, BELOW, Traces, finish, joined
from labkit.traces.trace import Trace
from labkit.traces.verdict import LONG_DELAY

# What the columns of the table are called here, and how their numbers are written.
ROWS = {
    "bound_by": ("bound by", "{}"),
    "why": ("why", "{}"),
    "wall_us": ("wall time", "{:,.1f} µs"),
    "idle_of_wall": ("idle, of the wall time", "{:.1%}"),
    "host_wait_of_idle": ("waiting for the host, of the idle time", "{:.1%}"),
    "data_of_idle": ("loading data, of the idle time", "{:.1%}"),
    "compute_of_busy": ("compute, of the busy time", "{:.1%}"),
    "memory_of_busy": ("memory, of the busy time", "{:.1%}"),
    "communication_of_busy": ("communication, of the busy time", "{:.1%}"),
    "long_delays_of_kernels": (f"begun over {LONG_DELAY:g} µs after launch, of the kernels", "{:.1%}"),
    "mean_queue": ("kernels waiting, on average", "{:,.1f}"),
}
LABEL, RECORDING = 3, 4  # how wide the columns are, relative to each other
WIDTH, CHARACTER, LINE, PADDING = 640, 6.5, 16, 10  # in pixels, of the narrowest table that is shown whole


def summary_figure(traces: Traces) -> go.Figure:
    """What bounds each recording, why, and the numbers that say so: a table with a column for each."""
    table = joined(traces, Trace.summary).set_index("recording")
    cells = {name: [_cell(row[column], form) for column, (_, form) in ROWS.items()] for name, row in table.iterrows()}
    labels = [label for label, _ in ROWS.values()]
    figure = go.Figure(
        go.Table(
            columnwidth=[LABEL, *[RECORDING] * len(cells)],
            header=dict(values=["", *(f"<b>{name}</b>" for name in cells)], align="left", height=LINE + PADDING),
            cells=dict(values=[labels, *map(_emphasised, cells.values())], align="left", height=LINE + PADDING),
        )
    )
    words = [
        f"{name}: " + "; ".join(f"{label} {cell}" for label, cell in zip(labels, column, strict=True))
        for name, column in cells.items()
    ]
    finish(figure, "What bounds each recording", traces, words, reverse=False)
    characters = WIDTH / (LABEL + RECORDING * len(cells)) / CHARACTER  # that fit, of a column as wide as 1
    lines = sum(
        max(ceil(len(label) / (LABEL * characters)), *(ceil(len(cell) / (RECORDING * characters)) for cell in row))
        for label, *row in zip(labels, *cells.values(), strict=True)
    )
    height = ABOVE + LINE * lines + PADDING * (len(ROWS) + 1)
    return figure.update_layout(height=height + BELOW, margin=dict(l=20, r=20, b=20))


def _emphasised(cells: list[str]) -> list[str]:
    """The verdict, which is the first, in bold."""
    return [f"<b>{cells[0]}</b>", *cells[1:]]


def _cell(value: object, form: str) -> str:
    if isinstance(value, float) and np.isnan(value):
        return "not known"
    return form.format(value).replace(" us ", " µs ")
