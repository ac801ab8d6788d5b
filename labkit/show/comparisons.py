"""The result of `labkit.compare`: a figure, and a report that opens without a network."""

from __future__ import annotations

import html
from pathlib import Path

import pandas
import plotly.express as px
import plotly.graph_objects as go

from labkit.measure.compare import reach
from labkit.stamp import describe
from labtrace.errors import check_known
from labtrace.show.page import write_page
from labtrace.show.style import KERNEL, UNUSED, WALL, in_words

# The columns that can be compared: a label, and the number by which to divide.
MEASURES = {
    "times_faster": ("times faster than the baseline", 1),
    "median_s": ("milliseconds a step, median", 1e-3),
    "images_per_s": ("images a second, of either domain", 1),
    "peak_bytes": ("peak memory, GB", 1e9),
    "flop_per_s": ("TFLOP/s", 1e12),
    "share_of_peak": ("share of the measured float32 peak (above 1 in TF32 or 16 bits)", 1),
}
HOW = """<p>All steps were timed in turn, in one process. The baseline was timed twice: the difference between these two
is noise, and a ratio within it means nothing.</p>"""


def comparison_figure(table: pandas.DataFrame, measure: str = "times_faster") -> go.Figure:
    """Each step's `measure` as a point, with its interval where it has one.

    The grey band is the baseline's own noise. A step that does nothing on a device, does not fit, or computes something
    else has no point but the reason for it.

    Args:
        table: from `labkit.compare`.
        measure: a column of the table, one of `MEASURES`.
    """
    check_known("measure", measure, MEASURES)
    label, unit = MEASURES[measure]
    rows = table[table["verdict"] != "noise"].rename_axis("step").reset_index()
    rows[["step", "why"]] = rows[["step", "why"]].map(html.escape)
    rows[label] = rows[measure].where(rows["verdict"] != "not equivalent") / unit
    rows["above"], rows["below"] = rows["times_faster_high"] - rows[label], rows[label] - rows["times_faster_low"]
    interval = dict(error_x="above", error_x_minus="below") if measure == "times_faster" else {}
    figure = px.scatter(rows.dropna(subset=label), x=label, y="step", hover_data=["verdict", "why"], **interval)
    marker = dict(size=12, color=KERNEL, line=dict(color=WALL, width=1))
    figure.update_traces(marker=marker, error_x=dict(color=WALL, thickness=1.5))
    if interval:
        far = reach(*table.loc[table["verdict"] == "noise", ["times_faster_low", "times_faster_high"]].iloc[0])
        figure.add_vrect(x0=1 / far, x1=far, fillcolor=UNUSED, opacity=0.25, line_width=0, layer="below")
    for row in rows[rows[label].isna()].itertuples():
        note = f"{row.verdict}: {row.why}" if row.verdict else "not known here"
        place = dict(xref="paper", x=0.01, y=row.step, xanchor="left", yanchor="bottom")
        figure.add_annotation(text=note[:110], showarrow=False, **place)
    # The axis is a category: where no step has a point, Plotly would read the names as numbers, and place no reason.
    names = dict(type="category", categoryorder="array", categoryarray=rows["step"][::-1], automargin=True, title="")
    figure.update_yaxes(range=[-0.6, len(rows) - 0.4], **names)
    figure.update_xaxes(title=label, rangemode="tozero")
    stamp = f"{describe(table.attrs['stamp'])}, batch {'x'.join(map(str, table.attrs['stamp']['batch_shape']))}"
    words = rows[["step", label, "verdict", "why"]].to_html(index=False, border=0, escape=False, na_rep="")
    return figure.update_layout(
        title=dict(text=f"Training steps compared: {label}<br><sub>{html.escape(stamp)}</sub>"),
        height=210 + 36 * len(rows),
        meta={"text": f"Training steps compared, {label}. Measured on: {stamp}.", "table": words},
    )


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
