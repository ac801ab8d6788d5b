"""A page of HTML with tables and figures, in one file that opens without a network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import plotly.graph_objects as go

from labkit.files import atomic_write

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; font-size: 0.85em; display: block; overflow-x: auto; }}
td, th {{ padding: 0.3em 0.7em; text-align: left; border-bottom: 1px solid #ddd; }}
</style></head><body><h1>{heading}</h1>
{body}</body></html>"""


def write_page(path: Path | str, title: str, heading: str, parts: Iterable[str | go.Figure]) -> Path:
    """Writes parts one below the other: HTML, and figures, of which the first brings Plotly along.

    Raises:
        LabkitError: the file cannot be written.
    """
    path, body, first = Path(path), [], True
    for part in parts:
        if isinstance(part, go.Figure):
            body.append(part.to_html(full_html=False, include_plotlyjs=first))
            first = False
        else:
            body.append(part)
    with atomic_write(path) as file:
        file.write_text(PAGE.format(title=title, heading=heading, body="\n".join(body)), encoding="utf-8")
    return path
