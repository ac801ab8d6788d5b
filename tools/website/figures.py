"""Plotly's figures as HTML: their contents as compact JSON, which static/figures.js draws."""

import base64
import gzip
import html
import io
import itertools
import json
from typing import Any

import numpy as np
import plotly.io
from PIL import Image

import labkit.show.style  # noqa: F401  registers the template of labkit's figures

PLOTLY = "application/vnd.plotly.v1+json"
TEMPLATE = plotly.io.templates["plotly+labkit"].to_plotly_json()  # once for all figures, in static/template.js
CLOSE_ENOUGH = 1e-5  # of the range of an axis: no screen has that many pixels
PNG = "data:image/png;base64,"
NUMBERS = itertools.count(1)


def figure_html(figure: dict[str, Any]) -> str:
    """A figure, given as its "data" and "layout", as HTML.

    Its text alternative, in `layout.meta["text"]`, becomes the label that screen readers speak.
    """
    words = html.escape(in_words(figure))
    contents = as_json(compact(figure)).replace("</", "<\\/")
    return (
        f'<figure class="plotly-figure" aria-label="{words}"><script type="application/json">{contents}</script>'
        f"<noscript>{words}</noscript></figure>"
    )


def chooser_html(
    controls: dict[str, list[str]], figures: dict[tuple[int, ...], dict[str, Any]], start: tuple[int, ...]
) -> str:
    """One of several figures, under a control for each choice: a slider if its values are numbers, else a menu.

    The figures have much in common, so they are compressed together.

    Args:
        controls: the values, by the name of the control.
        figures: for each combination of the values' positions.
        start: the positions at first.
    """
    lines = []
    for (name, values), at in zip(controls.items(), start, strict=True):
        key = f"choice-{next(NUMBERS)}"
        if all(value.replace(".", "").isdigit() for value in values):
            control = (
                f'<input type="range" id="{key}" min="0" max="{len(values) - 1}" value="{at}" '
                f"data-values='{json.dumps(values)}'><output for='{key}'>{values[at]}</output>"
            )
        else:
            options = "".join(
                f'<option value="{i}"{" selected" * (i == at)}>{html.escape(value)}</option>'
                for i, value in enumerate(values)
            )
            control = f'<select id="{key}">{options}</select>'
        lines.append(f'<p><label for="{key}">{html.escape(name)}</label> {control}</p>')
    contents = {
        ",".join(map(str, choice)): {**compact(figure), "words": in_words(figure)} for choice, figure in figures.items()
    }
    packed = base64.b64encode(gzip.compress(as_json(contents).encode(), mtime=0)).decode()
    return (
        f'<div class="chooser">{"".join(lines)}<figure class="chosen"></figure>'
        f'<script type="application/gzip">{packed}</script></div>'
    )


def compact(figure: dict[str, Any]) -> dict[str, Any]:
    """What Plotly draws, without the template, which all figures share, and the text alternative."""
    layout = {name: value for name, value in figure["layout"].items() if name not in ("template", "meta")}
    return {"data": thin(figure["data"]), "layout": thin(layout)}


def as_json(part: Any) -> str:
    """Without spaces."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False)


def in_words(figure: dict[str, Any]) -> str:
    """The text alternative of a figure, or its title."""
    layout = figure["layout"]
    title = layout.get("title") or ""
    return (layout.get("meta") or {}).get("text") or (
        title if isinstance(title, str) else title.get("text") or "Figure"
    )


def thin(part: Any) -> Any:
    """The same part of a figure in fewer characters: numbers as exact as a screen shows them, pictures as WebP."""
    if isinstance(part, dict) and "bdata" in part:
        return thin_array(part)
    if isinstance(part, dict):
        return {name: thin(value) for name, value in part.items() if value is not None}
    if isinstance(part, list) and part and any(isinstance(one, float) for one in part):
        return thin_numbers(part)
    if isinstance(part, list):
        return [thin(one) for one in part]
    return thin_picture(part) if isinstance(part, str) and part.startswith(PNG) else part


def thin_array(array: dict[str, Any]) -> dict[str, Any]:
    """Plotly's array of 64-bit numbers with 32 bits where that is close enough."""
    values = np.frombuffer(base64.b64decode(array["bdata"]), dtype=np.dtype(array["dtype"]).newbyteorder("<"))
    if values.dtype.kind != "f" or values.dtype.itemsize != 8 or len(values) == 0:
        return array
    fewer = values.astype("<f4")
    if np.nanmax(np.abs(fewer - values), initial=0) > CLOSE_ENOUGH * extent(values):
        return array
    return {**array, "dtype": "f4", "bdata": base64.b64encode(fewer.tobytes()).decode()}


def thin_numbers(values: list[Any]) -> list[Any]:
    """A list with its floats rounded."""
    known = np.array([value for value in values if isinstance(value, int | float)], dtype=float)
    if not len(known) or not extent(known) or len(known) < 10:
        return values
    digits = int(-np.floor(np.log10(CLOSE_ENOUGH * extent(known))))
    return [round(value, digits) if isinstance(value, float) else value for value in values]


def extent(values: np.ndarray) -> float:
    """The smaller of the range of values and their largest size, so that neither a shift nor a logarithm shows."""
    finite = values[np.isfinite(values) & (values != 0)]
    return float(min(np.ptp(finite), np.abs(finite).min() * 1e3)) if len(finite) else 0.0


def thin_picture(source: str) -> str:
    """A picture in its address as WebP: without loss if that is small, else of good quality."""
    picture = Image.open(io.BytesIO(base64.b64decode(source.removeprefix(PNG))))
    versions = []
    for options in (dict(lossless=True), dict(quality=88)):
        file = io.BytesIO()
        picture.save(file, "webp", method=6, **options)
        versions.append(base64.b64encode(file.getvalue()).decode())
    exact, smaller = versions
    best = exact if len(exact) < 30_000 or len(exact) < len(smaller) else smaller
    return f"data:image/webp;base64,{best}" if len(best) < len(source) else source
