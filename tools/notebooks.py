"""Bring notebooks into the one form in which they are committed, so that a diff shows what an author changed.

    python tools/notebooks.py [notebooks/01_build_cyclegan.ipynb ...]     # default: all of notebooks/

Outputs, execution counts, widget state and versions go. The first code cell becomes tools/first_cell.py. Cells tagged
`claims` are titled and folded. The first cell and those tagged `setup` are locked: when nbgrader grades, it takes them
from here and not from what was handed in. A cell's id follows from its exercise or its content, so that no editor
changes it. Tags and nbgrader's marks stay. A test holds the committed notebooks to this form.
"""

import hashlib
import sys
from itertools import count
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
FIRST_CELL = (ROOT / "tools" / "first_cell.py").read_text(encoding="utf-8").rstrip()
CLAIMS_TITLE = "# @title Checked: the numbers in the text above"
FOLDED = {"cellView": "form", "jupyter": {"source_hidden": True}}  # in Colab, in JupyterLab
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_METADATA = ("nbgrader", "tags", *FOLDED)


def set_first_cell(cells: list[NotebookNode]) -> None:
    """Make the first code cell the shared one, folded away; put it there if the notebook has none yet."""
    position = next((i for i, cell in enumerate(cells) if cell.cell_type == "code"), len(cells))
    title = FIRST_CELL.splitlines()[0]
    if position == len(cells) or not cells[position].source.startswith(title):
        cells.insert(position, nbformat.v4.new_code_cell())
    cells[position].source = FIRST_CELL
    cells[position].metadata = NotebookNode(FOLDED)


def fold_claims(cells: list[NotebookNode]) -> None:
    """Title and fold the cells tagged `claims`: they assert the numbers of the paragraph above, and would distract."""
    for cell in cells:
        if cell.cell_type == "code" and "claims" in cell.metadata.get("tags", []):
            if not cell.source.startswith(CLAIMS_TITLE):
                cell.source = f"{CLAIMS_TITLE}\n{cell.source}"
            cell.metadata.update(FOLDED)


def lock_setup(cells: list[NotebookNode]) -> None:
    """Mark the first code cell and those tagged `setup` for nbgrader, so that grading runs the course's own."""
    first = next(cell for cell in cells if cell.cell_type == "code")
    tagged = [cell for cell in cells if "setup" in cell.metadata.get("tags", [])]
    names = ["first_cell", "setup", *(f"setup_{n}" for n in range(2, len(tagged) + 1))]
    for name, cell in zip(names, [first, *tagged], strict=False):
        marks = {"grade": False, "grade_id": name, "locked": True, "solution": False, "task": False}
        cell.metadata["nbgrader"] = NotebookNode(marks, schema_version=3)


def cell_id(cell: NotebookNode, taken: set[str]) -> str:
    """The exercise's grade_id, else a digest of the content; numbered where it would repeat."""
    digest = hashlib.sha1(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
    name = cell.metadata.get("nbgrader", {}).get("grade_id", digest)
    return next(one for n in count(1) if (one := name if n == 1 else f"{name}-{n}") not in taken)


def normalise(text: str) -> str:
    """The canonical form of a notebook file's text."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata = NotebookNode(KERNEL)
    notebook.nbformat_minor = 5
    set_first_cell(notebook.cells)
    fold_claims(notebook.cells)
    lock_setup(notebook.cells)
    taken: set[str] = set()
    for cell in notebook.cells:
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in KEPT_METADATA if key in cell.metadata})
        cell.id = cell_id(cell, taken)
        taken.add(cell.id)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if (normal := normalise(text)) != text:
            path.write_text(normal, encoding="utf-8", newline="\n")
            print(f"{path}: normalised")
