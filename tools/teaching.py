"""Write what follows from the notebooks: TEACHING.md's minutes and points, and docs/misconceptions.md.

    python -m tools.teaching

Run it after an exercise, its points or its wrong answers have changed; a test says so.
"""

import re
from pathlib import Path

import nbformat

from tools.grading.course import points_of
from tools.mistakes import known

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "TEACHING.md", ROOT / "docs" / "misconceptions.md")


def course(notebooks: dict[Path, nbformat.NotebookNode]) -> str:
    """The table of notebooks."""
    rows = ["| notebook | minutes | exercises (points) | points |", "|---|---|---|---|"]
    for path, notebook in notebooks.items():
        minutes = re.search(r"\| your time \| (\d+) minutes \|", notebook.cells[0].source)
        points = points_of(notebook.cells)
        named = ", ".join(f"{name} ({each:g})" for name, each in points.items())
        rows.append(f"| [{path.stem}](notebooks/{path.name}) | {minutes[1]} | {named} | {sum(points.values()):g} |")
    return "\n".join(rows)


def misconceptions(notebooks: dict[Path, nbformat.NotebookNode]) -> str:
    """The wrong answers that the checks know, by exercise, folded for each notebook."""
    parts = []
    for path, notebook in notebooks.items():
        mistakes = known(path.stem)
        rows = ["| exercise | known mistakes |", "|---|---|"]
        for name in points_of(notebook.cells):
            if name in mistakes:
                rows.append(f"| {name} | {', '.join(one.in_words for one in mistakes[name])} |")
        table = "\n".join(rows)
        parts.append(f"<details><summary>{path.stem}</summary>\n\n{table}\n</details>")
    return "\n\n".join(parts)


def filled(page: str) -> str:
    """The page with its generated parts written afresh; each stands between two comments with its name."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    notebooks = {path: nbformat.read(path, as_version=4) for path in paths}
    for part in (course, misconceptions):
        name = part.__name__
        start, end = f"<!-- {name}: written by tools/teaching.py -->\n\n", f"\n\n<!-- end of {name} -->"
        if start in page:
            before, rest = page.split(start)
            page = before + start + part(notebooks) + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
