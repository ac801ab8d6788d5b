"""The minutes that a notebook promises are those that it takes, and README and TEACHING repeat them."""

import re

import nbformat
import pytest

from tools.assignments import ROOT, minutes_of
from tools.grading.course import points_of

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WORDS, LINES = 150, 15  # a minute: words of a text that is studied, lines of code that are read but not written
PREDICTION, FIGURE = 1.0, 0.5  # minutes to make a guess, and to look at a figure


def is_exercise(cell: nbformat.NotebookNode) -> bool:
    marks = cell.metadata.get("nbgrader", {})
    return marks.get("solution", False) or marks.get("grade", False)


def exercise_minutes(notebook: nbformat.NotebookNode) -> list[int]:
    """The minutes that the line below each exercise's heading promises, in their order."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [int(minutes) for minutes in re.findall(r"^\*\w+ · (\d+) minutes", text, flags=re.MULTILINE)]


def expected_minutes(notebook: nbformat.NotebookNode) -> float:
    """Minutes to study a notebook. Folded text counts half; solutions and checks are in the exercises' minutes."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    folded = " ".join(re.findall(r"<details>.*?</details>", text, flags=re.DOTALL))
    words = len(text.split()) - len(folded.split()) / 2
    shown = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and "jupyter" not in cell.metadata and not is_exercise(cell)
    ]
    lines = [line for source in shown for line in source.splitlines() if re.match(r"\s*[^\s#]", line)]
    code = sum(not line.startswith(("import", "from")) for line in lines)
    looks = text.count("**Predict") * PREDICTION + text.count("**Look at") * FIGURE
    return words / WORDS + code / LINES + sum(exercise_minutes(notebook)) + looks


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_promised_minutes_are_those_it_takes(path):
    notebook = nbformat.read(path, as_version=4)
    promised = minutes_of(notebook)
    assert promised == pytest.approx(expected_minutes(notebook), rel=0.15)
    row = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| [{path.stem}]"))
    assert row.split(" | ")[2] == str(promised)
    points = points_of(notebook.cells)
    pairs = zip(points.items(), exercise_minutes(notebook), strict=True)
    exercises = ", ".join(f"{name} ({most:g}, {minutes})" for (name, most), minutes in pairs)
    row = f"| [{path.stem}](notebooks/{path.name}) | {promised} | {exercises} | {sum(points.values()):g} |"
    assert row in (ROOT / "TEACHING.md").read_text(), "the notebook's row in TEACHING.md is another"


def test_each_notebook_has_a_session_whose_figures_exist():
    page = ROOT / "docs" / "sessions.md"
    sessions = page.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [one.split()[0] for one in sessions] == [path.stem.partition("_")[0] for path in NOTEBOOKS]
    for session in sessions:
        links = re.findall(r"\]\((.*?)\)", session)
        assert links and all((page.parent / link).exists() for link in links), session
