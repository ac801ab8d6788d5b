"""Draw the notebooks' figures for readers on GitHub, which shows none of Plotly's: docs/gallery.md and its pictures.

    python -m tools.gallery [notebooks/04_two_streams.ipynb ...]      # or: make gallery; default: all of notebooks/

Runs each notebook, as `make site` does, and draws its figures with Kaleido, which needs Chrome or Chromium. Pictures of
notebooks that are not named stay as they are. A picture has at most 64 colours.
"""

import argparse
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
START = "\n## ["  # of a notebook's part of the page
DRAWING = re.compile(r'labcourse\.drawing\("(\w+)"\)')
HEAD = """# The figures

All figures of the notebooks, for readers of this page: in JupyterLab and Colab they are interactive. `make gallery`
draws them. Times were measured on the machine that drew them, or on the GPU that a figure names. A figure of simulated
times says SIMULATED.
"""


def figures(notebook: nbformat.NotebookNode) -> list[go.Figure]:
    """The figures among the outputs of a notebook that was run."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    found = (output["data"].get(PLOTLY) for output in outputs if "data" in output)
    return [go.Figure({"data": one["data"], "layout": one["layout"]}) for one in found if one]


def draw(figure: go.Figure, path: Path) -> None:
    """Write a figure as a picture of at most 64 colours."""
    size = {name: figure.layout[name] or default for name, default in (("width", 900), ("height", 450))}
    picture = Image.open(io.BytesIO(kaleido.calc_fig_sync(figure, opts={"format": "png", **size})))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(64, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def run_and_draw(path: Path) -> str:
    """Run a notebook and draw its figures; the notebook's part of the page, in Markdown."""
    notebook = nbformat.read(executed(path), as_version=4)
    lines = [f"{path.stem}](../notebooks/{path.name})\n"]
    for name in DRAWING.findall("\n".join(cell.source for cell in notebook.cells)):
        lines.append(f"![{name}]({os.path.relpath(DRAWINGS / f'{name}.svg', GALLERY.parent)})\n")
    for old in PICTURES.glob(f"{path.stem[:2]}_*.png"):
        old.unlink()
    for number, figure in enumerate(figures(notebook), start=1):
        picture = PICTURES / f"{path.stem[:2]}_{number:02}.png"
        draw(figure, picture)
        words = html.escape(" ".join(str(figure.layout.meta["text"]).split()))
        lines.append(f'<img alt="{words}" src="{picture.relative_to(GALLERY.parent)}">\n')
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
