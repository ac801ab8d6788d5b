"""Notebooks are committed in one form, and bringing them into it loses nothing that an author wrote."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.notebooks import CLAIMS_TITLE, FIRST_CELL, FOLDED, normalise

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
MARKS = {"grade_id": "half", "solution": True, "grade": False, "locked": False, "task": False, "schema_version": 3}


def used_notebook() -> nbformat.NotebookNode:
    """A notebook as an editor leaves it behind."""
    exercise = new_code_cell("def half(x): ...", metadata={"nbgrader": dict(MARKS), "collapsed": True})
    shown = new_code_cell("1 + 1", metadata={"tags": ["setup"]}, execution_count=7)
    shown.outputs = [new_output("execute_result", {"text/plain": "2"}, execution_count=7)]
    cells = [new_markdown_cell("# A title"), shown, exercise, new_markdown_cell("again"), new_markdown_cell("again")]
    return new_notebook(cells=cells, metadata={"widgets": {"state": 1}, "language_info": {"name": "python"}})


def test_what_a_run_leaves_goes_and_what_an_author_wrote_stays():
    notebook = nbformat.reads(normalise(nbformat.writes(used_notebook())), as_version=4)
    title, first, shown, exercise, *again = notebook.cells
    assert title.source == "# A title"
    assert first.source == FIRST_CELL
    assert (shown.outputs, shown.execution_count, shown.metadata.pop("tags")) == ([], None, ["setup"])
    locked = {"solution": False, "grade": False, "locked": True, "task": False, "schema_version": 3}
    assert shown.metadata == {"nbgrader": locked | {"grade_id": "setup"}}
    assert exercise.metadata == {"nbgrader": MARKS}
    assert "widgets" not in notebook.metadata


def test_the_form_does_not_depend_on_the_editor():
    once, twice = (normalise(nbformat.writes(used_notebook())) for _ in range(2))  # two times other random ids
    assert once == twice == normalise(once)
    ids = [cell.id for cell in nbformat.reads(once, as_version=4).cells]
    assert len(set(ids)) == len(ids) and "half" in ids
    assert once.endswith("}\n")


def test_an_older_first_cell_is_replaced():
    notebook = used_notebook()
    notebook.cells.insert(1, new_code_cell(FIRST_CELL.splitlines()[0] + "\nprint('as it was once')"))
    assert normalise(nbformat.writes(notebook)) == normalise(nbformat.writes(used_notebook()))


def test_cells_that_check_the_text_are_titled_and_folded():
    notebook = used_notebook()
    notebook.cells.append(new_code_cell("assert 1 + 1 == 2", metadata={"tags": ["claims"]}))
    once = normalise(nbformat.writes(notebook))
    claims = nbformat.reads(once, as_version=4).cells[-1]
    assert claims.source == f"{CLAIMS_TITLE}\nassert 1 + 1 == 2"
    assert claims.metadata == {"tags": ["claims"], **FOLDED}
    assert normalise(once) == once


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_committed_notebooks_have_that_form(path):
    text = path.read_text(encoding="utf-8")
    assert text == normalise(text), "run: python tools/notebooks.py"
    assert len(text.encode()) <= 200_000, "are pictures attached to its text?"
