"""Make the student notebooks with nbgrader: solutions and hidden tests out, hints and visible tests in.

    python tools/assignments.py         # or: make assignments

The result is a course folder that nbgrader can go on with, started in the repository's folder:

    assignments/source/NAME/NAME.ipynb                  copied from notebooks/
    assignments/release/NAME/NAME.ipynb                 for the students
    assignments/submitted/STUDENT/NAME/NAME.ipynb       what they hand in: `make grade` puts it here and grades it
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
SOLVED = "The exercises are solved here? `make student` opens the version to work in."


def nbgrader(*arguments: str, course: Path) -> None:
    """Run nbgrader on a course folder, configured by nbgrader_config.py."""
    # nbgrader calls alembic, which lies beside Python and is found through PATH only
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "-m", "nbgrader", *arguments, f"--CourseDirectory.root={course}"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=True)


def make(notebooks: list[Path], course: Path) -> None:
    """Put `notebooks` into the course folder and make the students' versions of all that lie there."""
    for notebook in notebooks:
        source = course / "source" / notebook.stem / notebook.name
        source.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(without_our_own(nbformat.read(notebook, as_version=4)), source)
    forget_grades_of_changed(course)
    # Setup cells are locked, so that nbgrader restores them when it grades; their switches are for students to set.
    nbgrader("generate_assignment", "*", "--force", "--LockCells.lock_readonly_cells=False", course=course)


def without_our_own(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what serves its authors: the cells that check its text, and a pointer to the exercises."""
    notebook.cells = [cell for cell in notebook.cells if "claims" not in cell.metadata.get("tags", [])]
    notebook.cells[0].source = notebook.cells[0].source.replace(SOLVED, "").rstrip()
    return notebook


def forget_grades_of_changed(course: Path) -> None:
    """Take the grades of notebooks whose exercises have changed out of the gradebook: nbgrader refuses to keep them.

    The submissions stay, so that `make grade` can grade them again, and a copy of the gradebook with the old grades.
    """
    book = course / "gradebook.db"
    if not book.exists():
        return
    from nbgrader.api import Gradebook, MissingEntry  # takes seconds, and a first `make student` needs none of it

    kept = course / f"gradebook-until-{time.strftime('%Y%m%d-%H%M%S')}.db"
    with Gradebook(f"sqlite:///{book}") as gradebook:
        for path in sorted(course.glob("source/*/*.ipynb")):
            try:
                known = gradebook.find_notebook(path.stem, path.parent.name)
            except MissingEntry:
                continue
            marks = [cell.metadata.get("nbgrader", {}) for cell in nbformat.read(path, as_version=4).cells]
            marked = {one["grade_id"] for one in marks if any(map(one.get, ("grade", "solution", "locked", "task")))}
            changed = sorted(marked ^ {cell.name for cell in known.source_cells})
            students = [one.student.id for one in known.assignment.submissions]
            if not changed or not students:
                continue
            if not kept.exists():
                shutil.copy(book, kept)
            for student in students:
                gradebook.remove_submission(path.parent.name, student)
            print(
                f"{path.stem}: new or gone are the cells {', '.join(changed)}. The grades of {len(students)} students"
            )
            print(f"no longer fit, and stay in {kept} only. Grade again: make grade NOTEBOOK={path.stem}")


if __name__ == "__main__":
    make(sorted(ROOT.glob("notebooks/*.ipynb")), ROOT / "assignments")
    print("The students' notebooks are in assignments/release")
