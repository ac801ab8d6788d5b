"""A comparison as one HTML file that opens without a network: table, figures, and what it was measured on."""

from __future__ import annotations

import html
from pathlib import Path

import pandas

from labkit.errors import LabkitError
from labkit.show.comparisons import MEASURES, comparison_figure

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>labkit compare</title><style>
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; font-size: 0.85em; display: block; overflow-x: auto; }}
td, th {{ padding: 0.3em 0.7em; text-align: left; border-bottom: 1px solid #ddd; }}
</style></head><body><h1>Training steps compared</h1>
<p>Each step was timed in turn with the others, in one process. The baseline was timed twice: what differs between these
two is noise, and a ratio within it means nothing.</p>
{table}
{figures}
<h2>Measured on</h2>{stamp}</body></html>"""


def comparison_report(table: pandas.DataFrame, path: Path | str) -> Path:
    """Writes what `labkit.compare` gave as a page, with a figure for each thing that was measured.

    Raises:
        LabkitError: nothing can be written there.
    """
    path = Path(path)
    columns = [measure for measure in MEASURES if table[measure].notna().any()]
    shown = table[["verdict", "why"]].copy()
    for name in columns:
        label, unit = MEASURES[name]
        shown[label] = [_number(value / unit) for value in table[name].mask(table["verdict"] == "not equivalent")]
    for name in ("loss_difference", "gradient_cosine"):
        shown[f"first step: {name.replace('_', ' ')}"] = [_number(value) for value in table[name]]
    told = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in table.attrs["stamp"].items()}
    stamp = pandas.Series(told, name="").map(str).to_frame()
    figures = []
    for number, measure in enumerate(columns):
        figure = comparison_figure(table, measure)
        figures.append(figure.to_html(full_html=False, include_plotlyjs=number == 0))
        figures.append(f"<details><summary>In words</summary>{html.escape(figure.layout.meta['text'])}</details>")
    page = PAGE.format(table=shown.to_html(border=0), figures="\n".join(figures), stamp=stamp.to_html(header=False))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise LabkitError(f"{path}: nothing can be written there ({error.strerror}). Choose another folder.") from error
    return path


def _number(value: float) -> str:
    return "" if pandas.isna(value) else f"{value:,.3g}"
