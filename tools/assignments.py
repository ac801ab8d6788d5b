"""Make the student notebooks with nbgrader: solutions and hidden tests out, hints and visible tests in.

    python tools/assignments.py         # or: make assignments

The result is a course folder that nbgrader can continue with, started in the repository's folder:

    assignments/source/NAME/NAME.ipynb                  copied from notebooks/
    assignments/release/NAME/NAME.ipynb                 for the students
    assignments/submitted/STUDENT/NAME/NAME.ipynb       what they hand in: `make grade` puts it here and grades it
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
SOLVED = re.compile(r"Are the exercises solved here\? .*")  # for readers of the solutions; it leads to the gallery, too


def nbgrader(*arguments: str, course: Path) -> None:
    """Run nbgrader on a course folder, configured by nbgrader_config.py."""
    # nbgrader calls alembic, which lies beside Python and is found through PATH only
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "nbgrader", *arguments, f"--CourseDirectory.root={course}", "--log-level=ERROR"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=True)


def make(notebooks: list[Path], course: Path) -> None:
    """Put `notebooks` into the course folder and make the students' versions of all that lie there."""
    for notebook in notebooks:
        source = course / "source" / notebook.stem / notebook.name
        source.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(without_our_own(nbformat.read(notebook, as_version=4)), source)
    # Setup cells are locked, so that nbgrader restores them when it grades; their switches are for students to set.
    nbgrader("generate_assignment", "*", "--force", "--LockCells.lock_readonly_cells=False", course=course)


def minutes_of(notebook: nbformat.NotebookNode) -> int:
    """A student's time for a notebook, which the table at its top promises."""
    return int(re.search(r"\| your time \| (\d+) minutes \|", notebook.cells[0].source)[1])


def without_our_own(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what serves its authors: the cells that check its text, and a pointer to the exercises."""
    notebook.cells = [cell for cell in notebook.cells if "claims" not in cell.metadata.get("tags", [])]
    notebook.cells[0].source = SOLVED.sub("", notebook.cells[0].source).rstrip()
    return notebook


if __name__ == "__main__":
    make(sorted(ROOT.glob("notebooks/*.ipynb")), ROOT / "assignments")
