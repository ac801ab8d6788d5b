"""The result of `labkit.compare`: a figure, a widget, and a report that opens without a network."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import ipywidgets
import pandas
import plotly.express as px
import plotly.graph_objects as go

from labkit.errors import check_known
from labkit.show.page import write_page
from labkit.show.style import KERNEL, UNUSED, WALL, in_words
from labkit.show.widgets import controlled
from labkit.stamp import describe

Tables: TypeAlias = pandas.DataFrame | Mapping[str, pandas.DataFrame]

# The columns that can be compared: a label, and the number by which to divide.
MEASURES = {
    "times_faster": ("times faster than the baseline", 1),
    "median_s": ("milliseconds a step, median", 1e-3),
    "images_per_s": ("images a second, of either domain", 1),
    "peak_bytes": ("peak memory, GB", 1e9),
    "flop_per_s": ("TFLOP/s", 1e12),
    "share_of_peak": ("share of the device's measured float32 peak", 1),
}
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up")
HOW = """<p>All steps were timed in turn, in one process. The baseline was timed twice: the difference between these two
is noise, and a ratio within it means nothing.</p>"""


def comparison_figure(tables: Tables, measure: str = "times_faster") -> go.Figure:
    """Each step's `measure` as a point, with its interval where it has one.

    The grey band is the baseline's own noise. A step that does nothing on a device, does not fit, or computes something
    else has no point but the reason for it.

    Args:
        tables: from `labkit.compare`, one, or several by the name of their device.
        measure: a column of the table, one of `MEASURES`.
    """
    check_known("measure", measure, MEASURES)
    tables = {tables.attrs["stamp"]["device"]: tables} if isinstance(tables, pandas.DataFrame) else dict(tables)
    label, unit = MEASURES[measure]
    rows = pandas.concat({device: table.rename_axis("step") for device, table in tables.items()}, names=["device"])
    noise = rows[rows["verdict"] == "noise"]
    rows = rows[rows["verdict"] != "noise"].reset_index()
    rows[["step", "device", "why"]] = rows[["step", "device", "why"]].map(html.escape)
    rows[label] = rows[measure].where(rows["verdict"] != "not equivalent") / unit
    rows["above"], rows["below"] = rows["times_faster_high"] - rows[label], rows[label] - rows["times_faster_low"]
    interval = dict(error_x="above", error_x_minus="below") if measure == "times_faster" else {}
    good, others = rows[rows[label].notna()], rows[rows[label].isna()]
    shown = dict(symbol="device", symbol_sequence=SYMBOLS, hover_data=["verdict", "why"])
    figure = px.scatter(good, x=label, y="step", **interval, **shown)
    marker = dict(size=12, color=KERNEL, line=dict(color=WALL, width=1))
    figure.update_traces(marker=marker, error_x=dict(color=WALL, thickness=1.5))
    if interval:
        for band in noise.itertuples():
            look = dict(fillcolor=UNUSED, opacity=0.25, line_width=0, layer="below")
            figure.add_vrect(x0=band.times_faster_low, x1=band.times_faster_high, **look)
    for row in others.itertuples():
        note = f"{row.verdict}: {row.why}" if row.verdict else "not known here"
        note = f"{row.device}: {note}" if len(tables) > 1 else note
        figure.add_annotation(
            **dict(text=note[:110], showarrow=False, yanchor="bottom", xref="paper", x=0.01, y=row.step, xanchor="left")
        )
    # Said to be a category: where no step has a point, Plotly would take the names for numbers, and place no reason.
    order = list(dict.fromkeys(rows["step"]))[::-1]
    names = dict(type="category", categoryorder="array", categoryarray=order, automargin=True, title="")
    figure.update_yaxes(range=[-0.6, len(order) - 0.4], **names)
    figure.update_xaxes(title=label, rangemode="tozero")
    stamps = "; ".join(_stamped(table) for table in tables.values())
    words = rows[["device", "step", label, "verdict", "why"]].to_html(index=False, border=0, escape=False, na_rep="")
    figure.update_layout(
        title=dict(text=f"Training steps compared: {label}<br><sub>{html.escape(stamps)}</sub>"),
        height=210 + 36 * len(order),
        showlegend=len(tables) > 1,
        legend=dict(orientation="h", y=-0.25, title=""),
        meta={"text": f"Training steps compared, {label}. Measured on: {stamps}.", "table": words},
    )
    return figure


def comparison(tables: Tables) -> ipywidgets.VBox:
    """`comparison_figure`, with a menu of the quantities."""
    choice = ipywidgets.Dropdown(options=[(name, measure) for measure, (name, _) in MEASURES.items()])
    return controlled(functools.partial(comparison_figure, tables), {"measure": choice})


def comparison_report(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes the verdicts of `labkit.compare` as an HTML page, with a figure for each quantity that was measured.

    Raises:
        LabkitError: the file cannot be written.
    """
    parts: list[str | go.Figure] = [HOW, table[["verdict", "why"]].to_html(border=0)]
    for measure in MEASURES:
        if table[measure].notna().any():
            figure = comparison_figure(table, measure)
            parts += [figure, in_words(figure)]
    return write_page(path, "labkit compare", "Training steps compared", parts)


def _stamped(table: pandas.DataFrame) -> str:
    stamp = table.attrs["stamp"]
    return f"{describe(stamp)}, batch {'x'.join(map(str, stamp['batch_shape']))}"
