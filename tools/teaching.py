"""Write what follows from the notebooks: TEACHING.md's minutes and points, and a page of known mistakes for teachers.

    python -m tools.teaching            # or: make misconceptions

Run it after an exercise or its points have changed; a test says so. The mistakes go into out/misconceptions.md.
"""

import re
from pathlib import Path

import nbformat

from tools.assignments import ROOT, minutes_of
from tools.grading.course import points_of
from tools.mistakes import known

TEACHING, MISCONCEPTIONS = ROOT / "TEACHING.md", ROOT / "out" / "misconceptions.md"
START, END = "<!-- course: written by tools/teaching.py -->\n\n", "\n\n<!-- end of course -->"
HEAD = """# Misconceptions

The mistakes that the checks recognise and name. `make grade` counts how many students have made each of them. Each is
a few lines in `tools/wrong_answers/`, in its notebook's file.
"""
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


def misconceptions(notebooks: Notebooks) -> str:
    """The page of the wrong answers that the checks know, by notebook and exercise."""
    lines = [HEAD]
    for path, notebook in notebooks.items():
        mistakes = known(path.stem)
        lines += [f"## {path.stem}\n", "| exercise | known mistakes |", "|---|---|"]
        for name in points_of(notebook.cells):
            if name in mistakes:
                lines.append(f"| {name} | {', '.join(one.in_words for one in mistakes[name])} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    notebooks = read_notebooks()
    page = filled(TEACHING.read_text(encoding="utf-8"), notebooks)
    TEACHING.write_text(page, encoding="utf-8", newline="\n")
    MISCONCEPTIONS.parent.mkdir(exist_ok=True)
    MISCONCEPTIONS.write_text(misconceptions(notebooks), encoding="utf-8", newline="\n")
    print(f"The known mistakes: {MISCONCEPTIONS}")
