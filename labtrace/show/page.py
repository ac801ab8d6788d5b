"""A page of HTML with tables and figures, in one file that opens without a network."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from labtrace.files import atomic_write

# Plotly takes five megabytes, and a third of that compressed: the browser unpacks it, and then draws every figure.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; font-size: 0.85em; display: block; overflow-x: auto; }}
td, th {{ padding: 0.3em 0.7em; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }}
.figure {{ margin-top: 1.5em; }}
details {{ margin: 0.3em 0 2.5em; }}
.audit {{ border-left: 0.4em solid #d55e00; padding-left: 1em; }}
</style></head><body><h1>{heading}</h1>
{body}
<script id="plotly" type="text/plain">{plotly}</script>
<script>
const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
new Response(unpacked).text().then((program) => {{
  const script = document.createElement("script");
  script.textContent = program;
  document.head.append(script);
  for (const figure of document.querySelectorAll(".figure")) {{
    const {{ data, layout }} = JSON.parse(figure.nextElementSibling.textContent);
    Plotly.newPlot(figure, data, layout, {{ responsive: true }});
  }}
}});
</script></body></html>"""


def write_page(path: Path | str, title: str, heading: str, parts: Iterable[str | go.Figure]) -> Path:
    """Writes parts one below the other: HTML, and figures.

    Raises:
        LabError: the file cannot be written.
    """
    body = "\n".join(_drawn(part) if isinstance(part, go.Figure) else part for part in parts)
    plotly = base64.b64encode(gzip.compress(get_plotlyjs().encode())).decode()
    with atomic_write(Path(path)) as file:
        page = PAGE.format(title=title, heading=heading, body=body, plotly=plotly)
        file.write_text(page, encoding="utf-8")
    return Path(path)


def _drawn(figure: go.Figure) -> str:
    """The place of a figure, and its contents after it."""
    contents = str(figure.to_json()).replace("</", "<\\/")
    height = figure.layout.height or 450
    return f'<div class="figure" style="height: {height}px"></div>\n<script type="application/json">{contents}</script>'
