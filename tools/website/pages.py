"""The sources of the site's pages: the repository's documents, its notebooks with outputs, and pages made here."""

import re
import shutil
from pathlib import Path

import nbformat

import labkit
import labtrace
from tools.assignments import ROOT
from tools.student_repo import copy_tracked
from tools.website.notebooks import page

START = "index.md"  # the README, which Sphinx wants under this name
COPIED = (  # documents, and what they link to
    "docs examples labcourse/drawings data/speedrun data/paper data/measured data/README.md CONTRIBUTING.md "
    "CHANGELOG.md Makefile LICENSE pyproject.toml nbgrader_config.py CITATION.cff"
).split()
# For teachers alone: their documents, and entries that would do as an answer of notebook 12.
TEACHERS = re.compile(r"TEACHING\.md|docs/(?:sessions|classroom)\.md|data/speedrun/(?!cyclegan)\w+\.py")
# On no page: Sphinx would offer what documents link to as downloads, and the packages hold answers.
SOURCES = re.compile(r"lab(?:trace|kit|course)/[\w/.]+\.pyi?")
# All packages, and modules with names that no package lists.
PACKAGES = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("lab*/**/__init__.py")}
MODULES = {"labkit.models.step", "labkit.ranks", "labkit.sweeps", "labtrace.events.rank"}
API = sorted(PACKAGES - {"labkit.commands"} | MODULES)


def gather(executed: list[Path], source: Path) -> None:
    """Put everything that Sphinx reads into the folder `source`.

    Args:
        executed: the notebooks that were run.
        source: is emptied first, so that no old page stays.
    """
    shutil.rmtree(source, ignore_errors=True)
    copy_tracked(COPIED, source, TEACHERS)
    shutil.copy(ROOT / "README.md", source / START)
    (source / "notebooks").mkdir()
    for path in executed:
        notebook = page(nbformat.read(path, as_version=4))
        nbformat.write(notebook, source / "notebooks" / path.name)
    for path in source.rglob("*.md"):
        text = re.sub(r"^\[!\[.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)  # GitHub's badges
        path.write_text(linked(text), encoding="utf-8")
    write_api(source / "api")
    write_contents(source)


def linked(text: str) -> str:
    """A document's text: links to the README lead to the start page, and links to what is not there, nowhere."""
    text = re.sub(r"\]\(((?:\.\./)*)README\.md", rf"](\1{START}", text)
    return re.sub(rf"\[([^\]]*)\]\((?:\.\./)*(?:{SOURCES.pattern}|{TEACHERS.pattern})[^)]*\)", r"\1", text)


def write_api(folder: Path) -> None:
    """Pages that Sphinx fills from docstrings, one a module; a name of `labkit` itself is on that page alone."""
    folder.mkdir()
    for module in API:
        lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :members:"]
        if module in PACKAGES:  # it has its names from its modules
            lines.append("   :imported-members:")
        elsewhere = labkit.__all__ if module != "labkit" else []
        if module in ("labkit.show", "labkit.simulate"):  # they pass on names of labtrace
            elsewhere = [*elsewhere, *labtrace.show.__all__, *labtrace.replay.__all__]
        if elsewhere:
            lines.append(f"   :exclude-members: {', '.join(elsewhere)}")
        (folder / f"{module}.rst").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_contents(source: Path) -> None:
    """The site's table of contents, at the end of the start page."""
    documents = sorted(source.rglob("*.md"), key=lambda path: ("docs" not in path.parts, path))
    parts = {
        "The notebooks": sorted(f"notebooks/{path.stem}" for path in (source / "notebooks").glob("*.ipynb")),
        "Documents": [str(path.relative_to(source).with_suffix("")) for path in documents if path.name != START],
        "labkit's names": [f"api/{module}" for module in API],
    }
    with open(source / START, "a", encoding="utf-8") as file:
        for caption, pages in parts.items():
            file.write(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n")
