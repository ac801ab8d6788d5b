"""The look of all figures: template, colours with one meaning each, bars, panels, and the text alternative.

Every figure is drawn on white paper of its own. It cannot know whether the page around it is light or dark, and no
colour of text can be read well on both.

The text alternative lies in ``figure.layout.meta``: sentences under "text" and, if numbers are better read in a table,
HTML under "table". `view` shows both under the figure.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Mapping, Sequence

import pandas
import plotly.graph_objects as go
from plotly import io
from plotly.subplots import make_subplots

PAPER, INK = "#FFFFFF", "#444444"
FAINT, CLEAR = "rgba(128, 128, 128, 0.3)", "rgba(0, 0, 0, 0)"
# Okabe and Ito's palette, which colour-blind readers can tell apart. A colour means the same in every figure. Their
# yellow and their light blue are darker here: a line needs a contrast of 3 to the paper.
COLOURS = {"G": "#0072B2", "D": "#D55E00", "cycle": "#009E73", "idt": "#CC79A7", "dev": "#8C7A00", "rec": "#3A9AD4"}
HOST, KERNEL, WALL, UNUSED = "#E69F00", "#56B4E9", "#767676", "#B5B5B5"
EDGE = dict(color="#555555", width=0.5)  # of bars, so that pale ones can be seen on the paper
PLAYERS = {
    "generators": COLOURS["G"],
    "discriminators": COLOURS["D"],
    "autoencoder": COLOURS["rec"],
    "translator": COLOURS["G"],
    "discriminator": COLOURS["D"],
}
# Kinds of GPU activity: Okabe and Ito's yellow, and a wine of Paul Tol's that goes with their palette.
BY_KIND = {"compute": KERNEL, "memory": "#F0E442", "communication": "#882255"}
LINES = [*COLOURS.values(), BY_KIND["communication"], WALL]  # of runs and networks, where colours have no meaning
TALLEST = 800  # pixels of a table
DARK_THEME = """[data-jp-theme-light="false"] .js-plotly-plot {
  filter: invert(0.93) hue-rotate(180deg) brightness(1.3);
}"""  # of JupyterLab: figures in it are as dark as its page
ABOVE, BETWEEN, BELOW = 100, 75, 90  # pixels for the title, for a panel's name and ticks, and for the legend

_modebar = dict(bgcolor=CLEAR, color=WALL, activecolor=COLOURS["G"])
io.templates["labkit"] = go.layout.Template(
    layout=dict(paper_bgcolor=PAPER, plot_bgcolor=PAPER, font_color=INK, colorway=LINES, modebar=_modebar)
)
io.templates.default = "plotly_white+labkit"


def view(figure: go.Figure) -> None:
    """Shows a figure and, folded away under it, its text alternative. Of a table that text alone: it cuts no cell."""
    from IPython.display import HTML, display  # only notebooks need it

    if any(isinstance(part, go.Table) for part in figure.data):
        meta = figure.layout.meta
        table = meta["table"].replace("_", "_<wbr>").replace("<td>", '<td style="text-align: left">')  # may be broken
        display(HTML(f"<p>{figure.layout.title.text}</p>{table}<p>{html.escape(meta['text'])}</p>"))
    else:
        display(figure, HTML(f"<style>{DARK_THEME}</style>{in_words(figure)}"))


def in_words(figure: go.Figure) -> str:
    """A figure's text alternative as folded HTML."""
    meta = figure.layout.meta
    text = f"<p>{html.escape(meta['text'])}</p>{meta.get('table', '')}"
    marker = '<summary style="display: list-item">'  # the classic Notebook's style sheet takes it away
    return f"<details>{marker}This figure in words</summary>{text}</details>"


def text_on(colour: str) -> str:
    """Black or white: what is easier to read on a colour, given as "#0072B2"."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return "black" if luminance > 0.18 * 255**2.2 else "white"


def panels(heights: Mapping[str, float], notes: Mapping[str, str] | None = None) -> go.Figure:
    """Panels below one another, with one x axis, under their names if there are several.

    Args:
        heights: of each panel, in pixels, by its name.
        notes: a text above a panel, by the panel's name.
    """
    titles = {name: escaped(name) if len(heights) > 1 else "" for name in heights}
    titles |= {name: f"{name}: {note}" for name, note in (notes or {}).items()}
    height = sum(heights.values()) + BETWEEN * (len(heights) - 1)
    figure = make_subplots(
        len(heights),
        row_heights=list(heights.values()),
        vertical_spacing=BETWEEN / height if len(heights) > 1 else 0.0,
        subplot_titles=list(titles.values()),
        shared_xaxes=True,
    )
    return figure.update_layout(height=height + ABOVE + BELOW).update_annotations(font_size=13, x=0, xanchor="left")


def mark_simulated(figure: go.Figure, whose: str = "") -> go.Figure:
    """Writes SIMULATED in bold on the edge of each panel, where a cropped picture keeps it, and in the title.

    Args:
        figure: it is changed. It has its title.
        whose: the recordings that were simulated, if others were not.
    """
    stamp = f"<b>SIMULATED</b>: {escaped(whose)}" if whose else "<b>SIMULATED</b>"
    axes = dict.fromkeys((trace.xaxis or "x", trace.yaxis or "y") for trace in figure.data if "xaxis" in trace)
    look = dict(showarrow=False, font_size=11, bgcolor=PAPER, borderpad=2)
    place = dict(x=1, xanchor="right", y=1, yanchor="middle")  # half outside, since it hides what lies below
    for x, y in axes:
        figure.add_annotation(text=stamp, xref=f"{x} domain", yref=f"{y} domain", bordercolor=INK, **place, **look)
    return figure.update_layout(title_text=figure.layout.title.text.replace("SIMULATED", "<b>SIMULATED</b>"))


def table_of(cells: pandas.DataFrame, widths: Sequence[float] | None = None) -> go.Figure:
    """A table of texts as a figure.

    Args:
        cells: texts, under the columns' names.
        widths: of the columns, relative to one another. None makes all as wide. A long table is scrolled.
    """
    look = dict(fill_color=CLEAR, line_color=FAINT, align="left", height=26)
    header = dict(values=[f"<b>{escaped(name)}</b>" if name else "" for name in cells], **look)
    columns = dict(values=cells.map(escaped).T.values.tolist(), **look)
    figure = go.Figure(go.Table(header=header, cells=columns, columnwidth=widths))
    return figure.update_layout(height=min(190 + 40 * len(cells), TALLEST), margin=dict(l=20, r=20))


def time_unit(longest_us: float) -> tuple[float, str]:
    """Microseconds in the unit of an axis of times up to `longest_us`, and the unit's name."""
    return (1e3, "milliseconds") if longest_us > 1e4 else (1.0, "microseconds")


def escaped(name: str) -> str:
    """A name as Plotly shows it literally, and not as HTML."""
    return html.escape(name, quote=False)


def shortened(name: str, length: int = 44) -> str:
    """The first `length` characters of a kernel's name, without what most kernels share, and repeated types once."""
    name = re.sub(r"^void |\(anonymous namespace\)::|at::native::|binary_internal::|c10::", "", name)
    name = re.sub(r"gpu_kernel_impl(?:_nocast)?<| of type object at \w+", "", name)
    name = re.sub(r"\b([A-Za-z]\w*)(?:, \1\b)+", r"\1", name)
    return name if len(name) <= length else f"{name[: length - 2]} …"


def label(name: str) -> str:
    """A name beside a bar, in one line or two."""
    first, *rest = textwrap.wrap(shortened(name, 200), 44) or [""]
    return "<br>".join(map(escaped, [first, shortened(" ".join(rest))] if rest else [first]))
