"""The sources of the site's pages: the repository's documents, its notebooks with outputs, and pages made here."""

import importlib
import re
import shutil
from pathlib import Path

import nbformat
import plotly.offline

import labkit
from tools.website import notebooks
from tools.website.figures import TEMPLATE, as_json

ROOT = Path(__file__).resolve().parents[2]
START = "index.md"  # the README, which Sphinx wants under this name
BADGE = r"^\[!\[.*\n"  # a picture from GitHub, linked to GitHub
MORE = ("CONTRIBUTING.md", "TEACHING.md", "CHANGELOG.md", "data/README.md")  # documents beside the README and docs/
FILES = ("Makefile", "LICENSE", "pyproject.toml", "nbgrader_config.py", "CITATION.cff")  # that documents link to
FOLDERS = ("docs", "examples", "labkit/course/drawings", "data/speedrun")
API = {  # the name of a page -> the modules on it
    "labkit": ["labkit"],
    "pictures, networks and models": ["labkit.data", "labkit.networks", "labkit.models"],
    "training steps and speed-ups": [
        "labkit.models.step",
        "labkit.variants",
        "labkit.training.callbacks",
        "labkit.recipes",
    ],
    "measuring and comparing": ["labkit.measure", "labkit.sweeps"],
    "recordings": ["labkit.trace", "labkit.traces.recorded", "labkit.traces.rank"],
    "simulating": ["labkit.simulate"],
    "several processes": ["labkit.parallel", "labkit.ranks"],
    "figures": ["labkit.show"],
    "the course": ["labkit.course", "labkit.course.check"],
    "the speedrun": ["labkit.speedrun"],
}
GALLERY = """# Figures to play with

Move the controls. Every figure was drawn beforehand, so no Python runs behind this page. Under each figure of the
notebooks' own pages stands the same figure in words.

## Apples to oranges

The same test pictures after more and more training, on one processor core. The network never sees a pair.

{training}

## The trace explorer

Recordings of GPUs that others have published. Each figure answers one question about where the time went;
[notebook 03](../notebooks/03_read_the_trace.ipynb) reads them one by one.

{explorer}

## The ladder of the speedrun

Each rung is one change to the training before it; point at it to read which. [The speedrun](speedrun.md) has the rules.

{ladder}

## The launch queue

The host launches kernels, the GPU runs them. Which of them waits for the other? All times here are SIMULATED.

{queue}
"""


def gather(executed: Path, drawn: Path, source: Path) -> None:
    """Put everything that Sphinx reads into the folder `source`.

    Args:
        executed: the folder of the notebooks that were run.
        drawn: the folder of the figures to play with.
        source: is made afresh, so that no page of yesterday stays.
    """
    shutil.rmtree(source, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*MORE, *FILES):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (source / START).write_text(re.sub(BADGE, "", readme, flags=re.MULTILINE), encoding="utf-8")
    for path in known(executed):
        (source / "notebooks").mkdir(exist_ok=True)
        nbformat.write(notebooks.page(nbformat.read(path, as_version=4)), source / "notebooks" / path.name)
    parts = {path.stem: path.read_text(encoding="utf-8") for path in drawn.glob("*.html")}
    (source / "docs" / "gallery.md").write_text(GALLERY.format(**parts), encoding="utf-8")
    write_api(source / "api")
    write_contents(source)
    write_scripts(source / "scripts")


def known(executed: Path) -> list[Path]:
    """The notebooks that were run, without those that are no more."""
    return sorted(path for path in executed.glob("*.ipynb") if (ROOT / "notebooks" / path.name).exists())


def write_api(folder: Path) -> None:
    """Pages that Sphinx fills from docstrings."""
    folder.mkdir()
    for title, modules in API.items():
        lines = [title, "=" * len(title), ""]
        for module in modules:
            lines += [f".. automodule:: {module}", "   :members:"]
            if hasattr(importlib.import_module(module), "__path__"):  # a package has its names from its modules
                lines.append("   :imported-members:")
            if module != "labkit":
                lines.append(f"   :exclude-members: {', '.join(labkit.__all__)}")
            lines.append("")
        (folder / f"{file_name(title)}.rst").write_text("\n".join(lines), encoding="utf-8")


def file_name(title: str) -> str:
    """A title as the name of a file."""
    return re.sub(r"\W+", "_", title)


def write_contents(source: Path) -> None:
    """The site's table of contents, at the end of the start page; links to the README lead there."""
    for path in source.rglob("*.md"):
        if path != source / START:
            text = path.read_text(encoding="utf-8")
            path.write_text(re.sub(r"\]\(((?:\.\./)*)README\.md", rf"](\1{START}", text), encoding="utf-8")
    parts = {
        "The notebooks": sorted(path.stem for path in (source / "notebooks").glob("*.ipynb")),
        "Documents": [],
        "labkit's names": [],
    }
    parts["The notebooks"] = ["docs/gallery", *(f"notebooks/{name}" for name in parts["The notebooks"])]
    documents = sorted(path.stem for path in (source / "docs").glob("*.md") if path.stem != "gallery")
    parts["Documents"] = [f"docs/{name}" for name in documents]
    parts["Documents"] += [name.removesuffix(".md") for name in MORE if (source / name).exists()]
    parts["labkit's names"] = [f"api/{file_name(title)}" for title in API]
    trees = [
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in parts.items()
    ]
    with open(source / START, "a", encoding="utf-8") as file:
        file.writelines(trees)


def write_scripts(folder: Path) -> None:
    """Plotly, once for all pages, and the look of all figures."""
    folder.mkdir()
    (folder / "plotly.min.js").write_text(plotly.offline.get_plotlyjs(), encoding="utf-8")
    (folder / "template.js").write_text(f"window.labkitTemplate = {as_json(TEMPLATE)};\n", encoding="utf-8")
