"""Write TEACHING.md's table of minutes and points: `python -m tools.teaching`.

Run it after an exercise or its points have changed; a test says so.
"""

import re
from pathlib import Path

import nbformat

from tools.assignments import ROOT, minutes_of
from tools.grading.course import points_of

TEACHING = ROOT / "TEACHING.md"
START, END = "<!-- course: written by tools/teaching.py -->\n\n", "\n\n<!-- end of course -->"
Notebooks = dict[Path, nbformat.NotebookNode]


def read_notebooks() -> Notebooks:
    """All notebooks, by path."""
    return {path: nbformat.read(path, as_version=4) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def filled(page: str, notebooks: Notebooks) -> str:
    """TEACHING.md with the present table of notebooks, between its two comments."""
    rows = ["| notebook | minutes | exercises (points, minutes) | points |", "|---|---|---|---|"]
    for path, notebook in notebooks.items():
        points = points_of(notebook.cells)
        written = zip(points, exercise_minutes(notebook), strict=True)
        named = ", ".join(f"{name} ({points[name]:g}, {minutes})" for name, minutes in written)
        link, minutes = f"[{path.stem}](notebooks/{path.name})", minutes_of(notebook)
        rows.append(f"| {link} | {minutes} | {named} | {sum(points.values()):g} |")
    before, rest = page.split(START)
    return before + START + "\n".join(rows) + END + rest.split(END)[1]


def exercise_minutes(notebook: nbformat.NotebookNode) -> list[str]:
    """The minutes that the line below each exercise's heading promises, in their order."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.findall(r"^\*\w+ · (\d+) minutes", text, flags=re.MULTILINE)


if __name__ == "__main__":
    TEACHING.write_text(filled(TEACHING.read_text(encoding="utf-8"), read_notebooks()), encoding="utf-8", newline="\n")
