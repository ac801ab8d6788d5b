"""A notebook's promised minutes are those of its text, code and exercises, and the README repeats them."""

import re
from pathlib import Path

import nbformat
import pytest

from tools.assignments import minutes_of

ROOT = Path(__file__).parents[2]
WORDS, LINES = 150, 15  # a minute: words of a text that is studied, lines of code that are read but not written
PREDICTION, FIGURE = 1.0, 0.5  # minutes to make a guess, and to look at a figure


def is_exercise(cell: nbformat.NotebookNode) -> bool:
    marks = cell.metadata.get("nbgrader", {})
    return marks.get("solution", False) or marks.get("grade", False)


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
    exercises = sum(int(minutes) for minutes in re.findall(r"^\*\w+ · (\d+) minutes", text, flags=re.MULTILINE))
    looks = text.count("**Predict") * PREDICTION + text.count("**Look at") * FIGURE
    return words / WORDS + code / LINES + exercises + looks


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_promised_minutes_are_those_it_takes(path):
    notebook = nbformat.read(path, as_version=4)
    promised = minutes_of(notebook)
    assert promised == pytest.approx(expected_minutes(notebook), rel=0.15)
    row = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| [{path.stem}]"))
    assert row.split(" | ")[2] == str(promised)
