"""Draw the notebooks' figures for readers on GitHub, which shows none of Plotly's: docs/gallery.md and its pictures.

    python -m benchmarks.authoring.gallery [notebooks/04_two_streams.ipynb ...]    # or: make gallery

Runs each notebook, or all of notebooks/, as `make site` does, and draws its figures with Plotly's script in Chromium or
Chrome, by Playwright. Pictures of notebooks that are not named stay as they are. The README's timeline is drawn in any
case. A picture has at most 64 colours.
"""

import argparse
import base64
import functools
import html
import io
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import plotly
import plotly.graph_objects as go
from PIL import Image

import labcourse
import labtrace
from labcourse.drawings import FOLDER as DRAWINGS
from tools.website.notebooks import ROOT, executed

GALLERY, PICTURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
TIMELINE = ROOT / "docs" / "timeline.webp"
PLOTLY = "application/vnd.plotly.v1+json"
ROWS = re.compile(r'<figure role="img" aria-label="(.*?)"')  # of `labkit.show.picture_rows`
START = "\n## ["  # of a notebook's part of the page
TAGS = re.compile("<.*?>")
DRAWING = re.compile(r'labcourse\.drawing\("(\w+)"\)')
HEAD = """# The figures

All figures of the notebooks, for readers of this page: in JupyterLab and Colab they are interactive. `make gallery`
draws them. Times were measured on the machine that drew them, or on the GPU that a figure names. A figure of simulated
times says SIMULATED.
"""


def in_words(figure: go.Figure) -> str:
    """A figure's text alternative. Where this is a title, with a table beside it, what can be seen is added."""
    text = " ".join(str(figure.layout.meta["text"]).split())
    if "table" not in figure.layout.meta:
        return text
    return f"{text} {html.unescape(TAGS.sub('', '; '.join(seen(figure)).replace('<br>', ' ')))}."


def seen(figure: go.Figure) -> list[str]:
    """The longest bars, the course of each line, the first row of a table, and how full a timeline's lanes are."""
    panels = [note.text for note in figure.layout.annotations if note.yref == "paper"]
    bars, lanes, found = [], Counter(), []
    for one in figure.data:
        if one.type == "table":
            columns = zip(one.header["values"], one.cells["values"], strict=True)
            found += [f"{name}: {column[0]}" for name, column in columns if name]
            continue
        x, y = values(one.x), values(one.y)
        names = [panels[int((one.yaxis or "y")[1:] or 1) - 1] if panels else "", one.name or ""]
        if one.type == "bar" and one.base is not None:  # of a timeline
            for lane, length in zip(y, x, strict=True):
                lanes[", ".join(filter(None, [names[0], lane]))] += length
        elif len(y) and isinstance(y[0], str):
            bars += [(length, [names[0], place, names[1]]) for length, place in zip(x, y, strict=True) if length > 0]
        elif len(y):
            name = ", ".join(filter(None, names)) or "the line"
            found.append(f"{name} goes from {y[0]:,.4g} to {y[-1]:,.4g}, at most {max(y):,.4g}")
    if bars:
        *_, axis = figure.select_xaxes()
        number = "{:.0%}" if "%" in (axis.tickformat or "") else "{:,.4g}"
        longest = sorted(bars, key=lambda bar: bar[0], reverse=True)[:4]
        words = [f"{', '.join(filter(None, labels))} {number.format(length)}" for length, labels in longest]
        found.append(f"Most, as {axis.title.text}: {'; '.join(words)}")
    begin, end = figure.layout.xaxis.range or (0, 1)
    return found + [f"{lane} is filled to {min(1, length / (end - begin)):.0%}" for lane, length in lanes.items()]


def values(column: Any) -> Any:
    """The values of a figure's column, which a notebook's file may hold as encoded bytes."""
    if isinstance(column, dict):
        return np.frombuffer(base64.b64decode(column["bdata"]), column["dtype"])
    return () if column is None else column


def drawn(data: dict) -> tuple[str, Image.Image] | None:
    """The words and the picture of an output's data; None if it is no figure."""
    if PLOTLY in data:
        figure = go.Figure({"data": data[PLOTLY]["data"], "layout": data[PLOTLY]["layout"]})
        return in_words(figure), render(figure)
    if told := ROWS.match(page := str(data.get("text/html", ""))):
        rows = [Image.open(io.BytesIO(base64.b64decode(png))) for png in re.findall('base64,([^"]*)', page)]
        whole = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)))
        for number, row in enumerate(rows):
            whole.paste(row, (0, number * row.height))
        return html.unescape(told[1]), whole
    return None


@functools.cache
def plotly_page() -> Any:
    """A browser's page with Plotly's script."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")  # or Playwright's own
    browser = sync_playwright().start().chromium.launch(executable_path=path, args=["--no-sandbox"])
    page = browser.new_page()
    page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
    return page


def render(figure: go.Figure, scale: int = 1) -> Image.Image:
    """A figure's picture, drawn by a browser."""
    size = {name: figure.layout[name] or default for name, default in (("width", 900), ("height", 450))}
    drawing = "([figure, how]) => Plotly.toImage(figure, how)"
    image = plotly_page().evaluate(drawing, [json.loads(figure.to_json()), {"format": "png", "scale": scale, **size}])
    return Image.open(io.BytesIO(base64.b64decode(image.partition(",")[2])))


def keep(picture: Image.Image, path: Path) -> None:
    """Writes a picture with 64 colours. Opaque ones: with transparency, the pale lines of a figure's grid get lost."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.convert("RGB").quantize(64, method=Image.Quantize.FASTOCTREE).save(path, optimize=True, lossless=True)


def run_and_draw(path: Path) -> str:
    """Run a notebook and draw its figures; the notebook's part of the page, in Markdown."""
    notebook = nbformat.read(executed(path), as_version=4)
    lines = [f"{path.stem}](../notebooks/{path.name})\n"]
    for name in DRAWING.findall("\n".join(cell.source for cell in notebook.cells)):
        source = os.path.relpath(DRAWINGS / f"{name}.svg", GALLERY.parent)
        lines.append(f'<img alt="{html.escape(str(labcourse.drawing(name)))}" src="{source}">\n')
    for old in PICTURES.glob(f"{path.stem.partition('_')[0]}_*.png"):
        old.unlink()
    outputs = (output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    for number, (words, picture) in enumerate(filter(None, map(drawn, outputs)), start=1):
        file = PICTURES / f"{path.stem.partition('_')[0]}_{number:02}.png"
        keep(picture, file)
        lines.append(f'<img alt="{html.escape(words)}" src="{file.relative_to(GALLERY.parent)}">\n')
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted((ROOT / "notebooks").glob("*.ipynb")))
    chosen = [path.resolve() for path in parser.parse_args().notebooks]
    page = GALLERY.read_text(encoding="utf-8") if GALLERY.exists() else ""
    parts = {part.partition("_")[0]: part for part in page.split(START)[1:]}
    two_steps = labtrace.show.trace(labcourse.public_trace("resnet50_workers0"), "timeline", end_us=360_000)
    keep(render(two_steps, scale=2), TIMELINE)
    for path in chosen:
        parts[path.stem.partition("_")[0]] = run_and_draw(path)
        GALLERY.write_text(HEAD + "".join(f"{START}{parts[key]}" for key in sorted(parts)), encoding="utf-8")
        print(path.name, flush=True)


if __name__ == "__main__":
    main()
