"""The result of `labkit.compare`: a figure, a widget, and a report that opens without a network."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import ipywidgets
import pandas
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
    figure, words = go.Figure(), []
    for (device, table), symbol in zip(tables.items(), SYMBOLS * len(tables), strict=False):
        shown = table[table["verdict"] != "noise"]
        good = shown[shown[measure].notna() & (shown["verdict"] != "not equivalent")]
        values = good[measure] / unit
        error = None
        if measure == "times_faster":
            above, below = good["times_faster_high"] - values, values - good["times_faster_low"]
            error = dict(type="data", array=above, arrayminus=below, color=WALL, thickness=1.5)
            noise = table[table["verdict"] == "noise"].iloc[0]
            band = dict(fillcolor=UNUSED, opacity=0.25, line_width=0, layer="below")
            figure.add_vrect(x0=noise["times_faster_low"], x1=noise["times_faster_high"], **band)
        hover = [
            f"{html.escape(name)}, {html.escape(device)}: {value:,.3g}<br>{row.verdict}: {html.escape(row.why)}"
            for name, value, row in zip(good.index, values, good.itertuples(), strict=True)
        ]
        look = dict(size=12, color=KERNEL, symbol=symbol, line=dict(color=WALL, width=1))
        figure.add_scatter(
            y=[html.escape(name) for name in good.index],
            x=values,
            error_x=error,
            **dict(mode="markers", marker=look, name=device, hovertext=hover, hoverinfo="text"),
        )
        told = [f"{name} {value:,.3g} ({good.loc[name, 'verdict']})" for name, value in values.items()]
        for name, row in shown.drop(good.index).iterrows():
            why = f"{row['verdict']}: {row['why']}" if row["verdict"] else "not known here"
            note = f"{device}: {why}" if len(tables) > 1 else why
            place = dict(xref="paper", x=0.01, y=html.escape(name), xanchor="left")
            figure.add_annotation(text=html.escape(note[:110]), showarrow=False, yanchor="bottom", **place)
            told.append(f"{name}: {why}")
        words.append(f"{device}: {'; '.join(told)}.")
    order = list(dict.fromkeys(name for table in tables.values() for name in table.index))
    order = [html.escape(name) for name in order if not name.endswith(" again")]
    # Said to be a category: where no step has a point, Plotly would take the names for numbers, and place no reason.
    names = dict(type="category", categoryorder="array", categoryarray=order[::-1], automargin=True)
    figure.update_yaxes(range=[-0.6, len(order) - 0.4], **names)
    figure.update_xaxes(title=label, rangemode="tozero")
    stamps = "; ".join(_stamped(table) for table in tables.values())
    figure.update_layout(
        title=dict(text=f"Training steps compared: {label}<br><sub>{html.escape(stamps)}</sub>"),
        height=210 + 36 * len(order),
        showlegend=len(tables) > 1,
        legend=dict(orientation="h", y=-0.25),
        meta={"text": f"Training steps compared, {label}. {' '.join(words)} Measured on: {stamps}."},
    )
    return figure


def comparison(tables: Tables) -> ipywidgets.VBox:
    """`comparison_figure`, with a menu of the quantities."""
    choice = ipywidgets.Dropdown(options=[(name, measure) for measure, (name, _) in MEASURES.items()])
    return controlled(functools.partial(comparison_figure, tables), {"measure": choice})


def comparison_report(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes a table of `labkit.compare` as an HTML page with a figure for each quantity that was measured.

    Raises:
        LabkitError: the file cannot be written.
    """
    columns = [measure for measure in MEASURES if table[measure].notna().any()]
    measured = table[columns].mask(table["verdict"] == "not equivalent") / [MEASURES[name][1] for name in columns]
    measured = measured.rename(columns={name: label for name, (label, _) in MEASURES.items()})
    first = table[["loss_difference", "gradient_cosine"]].rename(
        columns=lambda name: f"first step: {name.replace('_', ' ')}"
    )
    shown = pandas.concat([table[["verdict", "why"]], measured, first], axis=1)
    told = pandas.Series(table.attrs["stamp"], dtype=object)
    stamp = told.map(lambda value: f"{value:.3g}" if isinstance(value, float) else str(value)).to_frame()
    numbers = dict(float_format="{:,.3g}".format, na_rep="")
    parts: list[str | go.Figure] = [HOW, shown.to_html(border=0, **numbers)]
    for measure in columns:
        figure = comparison_figure(table, measure)
        parts += [figure, in_words(figure)]
    parts.append(f"<h2>Measured on</h2>{stamp.to_html(header=False)}")
    return write_page(path, "labkit compare", "Training steps compared", parts)


def _stamped(table: pandas.DataFrame) -> str:
    stamp = table.attrs["stamp"]
    return f"{describe(stamp)}, batch {'x'.join(map(str, stamp['batch_shape']))}"
