"""nbgrader's preprocessors of this course: what it does to a submission before it runs it.

`nbgrader_config.py` puts them beside nbgrader's own, so `nbgrader autograde` and formgrader have them, too. nbgrader
calls `preprocess` of each, which takes a notebook and nbgrader's resources, and returns both.
"""

import ast
from contextlib import suppress
from copy import deepcopy
from itertools import takewhile
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_locked, is_solution

from labcourse.check.cells import needed, plain

STOPPED = "TimeoutError"  # the name of the error of a cell that was not run to its end
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
    """Makes one answer of a copied or split one, which nbgrader cannot grade, and puts deleted checks back.

    What a student wrote into a setup cell, which nbgrader restores, becomes a cell after it. What was written in new
    cells around the answer to a question in words becomes a part of it. nbgrader's notes in a cell are the course's.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """A notebook that has each answer at most once and each check once, in any order."""
        unite(nb)
        released = self.released_cells(resources)
        own = {name_of(cell): cell for cell in released if name_of(cell)}
        take_from_beside(nb, released)
        setup = {line for cell in own.values() if is_setup(cell) for line in statements(cell.source)}
        for cell in [*nb.cells]:
            if name_of(cell) not in own:  # not the course's, or of an older version of it
                cell.metadata.pop("nbgrader", None)
                continue
            cell.metadata["nbgrader"] = own[name_of(cell)].metadata.nbgrader  # which other programs may have changed
            if is_setup(cell) and (added := [line for line in statements(cell.source) if line not in setup]):
                nb.cells.insert(nb.cells.index(cell) + 1, new_code_cell("\n".join(added)))
        present = {name_of(cell) for cell in nb.cells}
        nb.cells += [cell for name, cell in own.items() if is_grade(cell) and name not in present]
        return nb, resources


def copies(nb: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The marked cells that a notebook has more than once, as JupyterLab makes them of a copied or split cell."""
    found: dict[str, list[NotebookNode]] = {}
    for cell in nb.cells:
        found.setdefault(name_of(cell), []).append(cell)
    return {name: cells for name, cells in found.items() if name and len(cells) > 1}


def unite(nb: NotebookNode) -> None:
    """Make one cell of the copies of a cell: of an answer, all parts above its check, in the order they run in."""
    for name, cells in copies(nb).items():
        names = [*map(name_of, nb.cells), f"{name}_check"]
        parts = [cell for cell in nb.cells[: names.index(f"{name}_check")] if name_of(cell) == name] or cells
        if is_solution(parts[0]):
            parts[0].source = "\n\n".join(cell.source for cell in parts)
        for cell in cells:
            if cell is not parts[0]:
                del cell.metadata["nbgrader"]


def take_from_beside(nb: NotebookNode, released: list[NotebookNode]) -> None:
    """Add to each written answer what stands in the student's own text cells below and above it.

    Of an answer that was left as released these may be code cells, too. One that was deleted comes back first.
    """
    texts = {cell.source for cell in released}
    for number, question in enumerate(released):
        if not (is_grade(question) and is_solution(question)):
            continue
        if name_of(question) not in map(name_of, nb.cells):
            earlier = {name_of(cell) or cell.source for cell in released[:number]}
            places = [place for place, cell in enumerate(nb.cells) if (name_of(cell) or cell.source) in earlier]
            nb.cells.insert(max(places, default=-1) + 1, deepcopy(question))
        place = [*map(name_of, nb.cells)].index(name_of(question))
        answer, sides = nb.cells[place], (nb.cells[:place][::-1], nb.cells[place + 1 :])
        own = [[*takewhile(lambda one: not name_of(one) and one.source not in texts, side)] for side in sides]
        if answer.source != question.source or any(one.cell_type != "code" for side in own for one in side):
            own = [[one for one in side if one.cell_type != "code"] for side in own]
        above, below = ([one.source for one in side if one.source.strip()] for side in own)
        answer.source = "\n\n".join([*above[::-1], answer.source, *below])


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


def is_wrong(check: NotebookNode) -> bool:
    """Whether a check ended with an error."""
    return any(output.output_type == "error" for output in check.outputs)
