"""nbgrader's preprocessors of this course: what it does to a submission before and while it runs it.

`nbgrader_config.py` puts them beside nbgrader's own, so `nbgrader autograde` and formgrader have them, too. nbgrader
calls `preprocess` of each, which takes a notebook and nbgrader's resources, and returns both.
"""

import ast
import os
import secrets
from contextlib import suppress
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_locked, is_solution

from labcourse.check.cells import needed, plain
from tools.grading.container import run_in_container

STOPPED = "CellTimeoutError"  # nbgrader's name for the error of a cell that was not run to its end
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PLOTLY_RENDERER": "plotly_mimetype"}
LONG = {"12_speedrun": 3600}  # seconds for a cell of a notebook whose answers train
Conversion = tuple[NotebookNode, dict]


def is_setup(cell: NotebookNode) -> bool:
    """Whether the exercises need a code cell: it is locked and worth no points."""
    return cell.cell_type == "code" and is_locked(cell) and not is_grade(cell)


def name_of(cell: NotebookNode) -> str:
    """nbgrader's name of a cell, "" if it has none."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def exercise_of(cell: NotebookNode) -> str:
    """The exercise to which a cell belongs, as its answer or its check, "" if to none."""
    return name_of(cell).removesuffix("_check") if is_grade(cell) or is_solution(cell) else ""


class CoursePreprocessor(NbGraderPreprocessor):
    """Knows the course's own notebook."""

    def released_cells(self, resources: dict) -> list[NotebookNode]:
        """The cells of the notebook that was handed out."""
        course, names = CourseDirectory(parent=self), resources["nbgrader"]
        folder = course.format_path(course.release_directory, ".", names["assignment"])
        return nbformat.read(Path(folder) / f"{names['notebook']}.ipynb", as_version=4).cells


class RestoreCells(CoursePreprocessor):
    """Gives each of the course's cells its marks again, once, and puts deleted ones back.

    Of a cell that was copied or split the first part keeps the marks; the others run as the student's own. What a
    student wrote into a setup cell, which nbgrader restores, becomes a cell after it.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """A notebook that has each answer and each check once, in any order."""
        own = {name_of(cell): cell for cell in self.released_cells(resources) if name_of(cell)}
        setup = {line for cell in own.values() if is_setup(cell) for line in statements(cell.source)}
        missing = dict(own)
        for cell in [*nb.cells]:
            if not (released := missing.pop(name_of(cell), None)):  # not the course's, or there already
                cell.metadata.pop("nbgrader", None)
                continue
            cell.metadata["nbgrader"] = released.metadata.nbgrader  # which other programs may have changed
            if is_setup(cell) and (added := [line for line in statements(cell.source) if line not in setup]):
                nb.cells.insert(nb.cells.index(cell) + 1, new_code_cell("\n".join(added)))
        nb.cells += [cell for cell in missing.values() if is_grade(cell)]
        return nb, resources


def statements(source: str) -> list[str]:
    """The statements of a cell, without comments. There are none in one that is no Python."""
    with suppress(SyntaxError):
        return [ast.unparse(line) for line in ast.parse(plain(source)).body]
    return []


class OnlyExercises(CoursePreprocessor):
    """Marks the cells that no exercise needs, so that nbgrader, which runs the notebook next, leaves them out.

    The setup cells are the course's own. An earlier cell that defines a name which the answer or its check uses runs
    as well: see `labcourse.check.cells`.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """The notebook with the tag "skip-execution" on these cells."""
        course = {cell.source for cell in self.released_cells(resources)}
        above, wanted = [], {id(cell) for cell in nb.cells if is_setup(cell)}
        for cell in nb.cells:
            if cell.cell_type != "code" or is_setup(cell):
                continue
            if is_grade(cell):
                cells = [*above, cell]
                its_own = {place for place, one in enumerate(cells) if exercise_of(one) == exercise_of(cell)}
                written = {place for place, one in enumerate(above) if one.source not in course}
                wanted |= {id(cells[place]) for place in needed([one.source for one in cells], its_own, written)}
            else:
                above.append(cell)
        for cell in nb.cells:
            if cell.cell_type == "code" and id(cell) not in wanted:
                cell.metadata.setdefault("tags", []).append("skip-execution")
        return nb, resources


class RunExercises(Execute):
    """nbgrader's Execute, in a container. The variable ISOLATION=none does without one."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """The notebook with the outputs of its cells; raises RuntimeError if it could not be run to its end."""
        self.timeout = LONG.get(resources["nbgrader"]["notebook"], self.timeout)
        environment = ENVIRONMENT | {"LABKIT_CHECK_SEED": str(class_seed(Path(CourseDirectory(parent=self).root)))}
        if os.environ.get("ISOLATION") == "none":
            os.environ.update(environment)
            nb, resources = super().preprocess(nb, resources)
        else:
            run_in_container(nb, environment, {"timeout": self.timeout, "error_on_timeout": self.error_on_timeout})
        if broken := next((cell for cell in nb.cells if is_setup(cell) and error_of(cell)), None):
            raise RuntimeError(f"the course's own cell {name_of(broken)} fails here: {error_of(broken)}")
        return nb, resources


def class_seed(course: Path) -> int:
    """The number from which the checks draw, for all students and notebooks of a course; drawn itself at first."""
    path = course / "seed.txt"
    if not path.exists():
        path.write_text(f"{secrets.randbelow(2**31)}\n", encoding="utf-8")
    return int(path.read_text(encoding="utf-8"))


def error_of(cell: NotebookNode) -> str:
    """The error with which a cell ended, "" if it did not."""
    return next((f"{one.ename}: {one.evalue}" for one in cell.outputs if one.output_type == "error"), "")
