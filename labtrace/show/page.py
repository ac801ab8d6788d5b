"""A page of HTML with tables and figures, in one file that opens without a network."""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from labtrace.files import atomic_write
from labtrace.show.bars import readable
from labtrace.show.style import ABOVE

TOP = 32  # pixels above a figure without its title: panels' names and Plotly's buttons
# Plotly takes five megabytes, and a third of that compressed: the browser unpacks it, and then draws every figure.
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }}
h1 {{ font-size: 1.5em; margin: 0; }}
h2 {{ font-size: 1.1em; margin: 0.7em 0 0.2em; }}
section {{ display: inline-block; vertical-align: top; max-width: 100%; margin-right: 2.5em; }}
table {{ border-collapse: collapse; font-size: 0.85em; display: block; overflow-x: auto; }}
td, th {{ padding: 0.25em 0.7em; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }}
td:not(:last-child) {{ white-space: nowrap; }}
details {{ margin: 0.3em 0 1.5em; }}
@media (prefers-color-scheme: dark) {{ .figure {{ filter: invert(0.93) hue-rotate(180deg) brightness(1.3); }} }}
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


class Part(NamedTuple):
    """A paragraph or a table, for the terminal and for the page.

    Attributes:
        strong: the sentence to read first, or the heading of the table.
        text: further sentences.
        table: if it is one.
    """

    strong: str
    text: str = ""
    table: pandas.DataFrame | None = None

    def plain(self) -> str:
        """For the terminal."""
        if self.table is None:
            return f"{self.strong} {self.text}".rstrip()
        shown = readable(self.table)
        names = shown.iloc[:, 0]
        shown = shown.assign(**{names.name: names.str.ljust(names.str.len().max())})
        return f"\n{self.strong}\n{shown.to_string(index=False)}"

    def html(self) -> str:
        """For the page."""
        if self.table is None:
            return f"<p><b>{html.escape(self.strong)}</b> {html.escape(self.text)}</p>"
        shown = readable(self.table).to_html(index=False, border=0)
        return f"<section><h2>{html.escape(self.strong)}</h2>{shown}</section>"


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
    """The place of a figure under its title, which a page breaks where it has to, and its contents after it.

    Of the stamps in small letters under the title only the steps are kept: the rest is once on the page.
    """
    title, _, stamps = (figure.layout.title.text or "").replace("<br>", " ").partition(" <sub>")
    steps = dict.fromkeys(re.findall(r"only steps? \d+(?: to \d+)?", re.sub("</?sub>", "", stamps)))
    title += f" ({', '.join(steps)})" if steps else ""
    height = (figure.layout.height or 450) - (figure.layout.margin.t or ABOVE) + TOP
    shown = go.Figure(figure).update_layout(title_text="", height=height, margin_t=TOP)
    contents = str(shown.to_json()).replace("</", "<\\/")
    place = f'<div class="figure" style="height: {height}px"></div>'
    return f'<h2>{title}</h2>{place}\n<script type="application/json">{contents}</script>'
