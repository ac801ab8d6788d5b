"""Draw the notebooks' figures for readers on GitHub, which shows none of Plotly's: docs/gallery.md and its pictures.

    python -m tools.gallery [notebooks/04_two_streams.ipynb ...]      # or: make gallery; default: all of notebooks/

Runs each notebook, as `make site` does, and draws its figures with Kaleido, which needs Chrome or Chromium. Pictures of
notebooks that are not named stay as they are. A picture has at most 64 colours and no background, so that it fits light
and dark pages.
"""

import argparse
import base64
import html
import io
import os
import re
from pathlib import Path

import kaleido
import nbformat
import plotly.graph_objects as go
from PIL import Image

from labcourse.drawings import FOLDER as DRAWINGS
from tools.website.notebooks import ROOT, executed

GALLERY, PICTURES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
PLOTLY = "application/vnd.plotly.v1+json"
ROWS = re.compile(r'<figure role="img" aria-label="(.*?)"')  # of `labkit.show.picture_rows`
START = "\n## ["  # of a notebook's part of the page
DRAWING = re.compile(r'labcourse\.drawing\("(\w+)"\)')
HEAD = """# The figures

All figures of the notebooks, for readers of this page: in JupyterLab and Colab they are interactive. `make gallery`
draws them. Times were measured on the machine that drew them, or on the GPU that a figure names. A figure of simulated
times says SIMULATED.
"""


def drawn(data: dict) -> tuple[str, Image.Image] | None:
    """The words and the picture of an output's data; None if it is no figure."""
    if PLOTLY in data:
        figure = go.Figure({"data": data[PLOTLY]["data"], "layout": data[PLOTLY]["layout"]})
        size = {name: figure.layout[name] or default for name, default in (("width", 900), ("height", 450))}
        png = kaleido.calc_fig_sync(figure, opts={"format": "png", **size})
        return figure.layout.meta["text"], Image.open(io.BytesIO(png))
    if told := ROWS.match(page := str(data.get("text/html", ""))):
        rows = [Image.open(io.BytesIO(base64.b64decode(png))) for png in re.findall('base64,([^"]*)', page)]
        whole = Image.new("RGB", (rows[0].width, sum(row.height for row in rows)))
        for number, row in enumerate(rows):
            whole.paste(row, (0, number * row.height))
        return html.unescape(told[1]), whole
    return None


def run_and_draw(path: Path) -> str:
    """Run a notebook and draw its figures; the notebook's part of the page, in Markdown."""
    notebook = nbformat.read(executed(path), as_version=4)
    lines = [f"{path.stem}](../notebooks/{path.name})\n"]
    for name in DRAWING.findall("\n".join(cell.source for cell in notebook.cells)):
        lines.append(f"![{name}]({os.path.relpath(DRAWINGS / f'{name}.svg', GALLERY.parent)})\n")
    for old in PICTURES.glob(f"{path.stem[:2]}_*.png"):
        old.unlink()
    PICTURES.mkdir(exist_ok=True)
    outputs = (output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    for number, (words, picture) in enumerate(filter(None, map(drawn, outputs)), start=1):
        file = PICTURES / f"{path.stem[:2]}_{number:02}.png"
        picture.quantize(64, method=Image.Quantize.FASTOCTREE).save(file, optimize=True)
        alternative = html.escape(" ".join(words.split()))
        lines.append(f'<img alt="{alternative}" src="{file.relative_to(GALLERY.parent)}">\n')
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted((ROOT / "notebooks").glob("*.ipynb")))
    chosen = [path.resolve() for path in parser.parse_args().notebooks]
    page = GALLERY.read_text(encoding="utf-8") if GALLERY.exists() else ""
    parts = {part.partition("_")[0]: part for part in page.split(START)[1:]}
    kaleido.start_sync_server(silence_warnings=True)
    for path in chosen:
        parts[path.stem[:2]] = run_and_draw(path)
        GALLERY.write_text(HEAD + "".join(f"{START}{parts[key]}" for key in sorted(parts)), encoding="utf-8")
        print(path.name, flush=True)
    kaleido.stop_sync_server()


if __name__ == "__main__":
    main()
