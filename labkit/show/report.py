"""A page about one trace or several: the price of each cause first, and then the figures that show it."""

from __future__ import annotations

import html
from pathlib import Path

import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show.page import write_page
from labkit.show.recordings import Traces, named
from labkit.show.style import in_words
from labkit.show.trace_views import trace

SHOWN = ("remedies", "summary", "temporal", "idle", "gaps", "kernels", "ranges", "operators")  # views, in this order


def trace_report(traces: Traces, path: Path | str) -> Path:
    """Writes an HTML page that opens without a network: what each cause costs, what bounds the trace, and the figures.

    A view that a trace does not allow, such as those of a GPU for a trace recorded on a CPU, is named at the end, with
    its error.

    Args:
        traces: a trace, or traces by name.
        path: of the page.

    Raises:
        LabkitError: the page cannot be written.
    """
    parts: list[str | go.Figure] = []
    errors: list[str] = []
    for view in SHOWN:
        try:
            figure = trace(traces, view)
        except LabkitError as error:
            errors.append(html.escape(f"{view}: {error}"))
        else:
            parts += [figure, in_words(figure)]
    if errors:
        parts.append(f"<h2>Not shown</h2><ul><li>{'</li><li>'.join(errors)}</li></ul>")
    return write_page(path, "labkit report", html.escape(", ".join(named(traces))), parts)
