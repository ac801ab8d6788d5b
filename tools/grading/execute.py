"""nbgrader's preprocessors of this course: what it does to a submission before and while it runs it.

`nbgrader_config.py` puts them into the place of nbgrader's own, so `nbgrader autograde` and formgrader have them, too.
"""

import json
import os
import secrets
import subprocess
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer, Unicode

from tools.grading import sandbox

FIRST_CELL = "# @title Setup: run this cell first."
STOPPED = "Stopped"  # the name of the error of a cell that was not run to its end
Conversion = tuple[NotebookNode, dict]


def is_setup(cell: NotebookNode) -> bool:
    """Whether the exercises need a cell: tagged `setup`, locked and worth no points, or the one that finds labkit."""
    marks = cell.metadata.get("nbgrader", {})
    locked = marks.get("locked") and not marks.get("grade") and not marks.get("solution")
    tagged = "setup" in cell.metadata.get("tags", []) or locked
    return cell.cell_type == "code" and bool(tagged or cell.source.startswith(FIRST_CELL))


def is_marked(cell: NotebookNode) -> bool:
    """Whether a cell is an answer or a check."""
    return is_solution(cell) or is_grade(cell)


class CoursePreprocessor(NbGraderPreprocessor):
    """Knows the course's own notebook."""

    def own(self, stage: str, resources: dict) -> NotebookNode:
        """The course's notebook of a submission; `stage` is "source", with solutions, or "release", without."""
        course, names = CourseDirectory(parent=self), resources["nbgrader"]
        folder = course.format_path(getattr(course, f"{stage}_directory"), ".", names["assignment"])
        return nbformat.read(Path(folder) / f"{names['notebook']}.ipynb", as_version=4)


class AddMissingCells(CoursePreprocessor):
    """Puts answers and checks back that a student has deleted: nbgrader's own option fails where both are missing."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """A notebook with all marked cells, in any order in which the student has them."""
        present = {cell.metadata.nbgrader.get("grade_id"): cell for cell in nb.cells if "nbgrader" in cell.metadata}
        before = None
        for cell in self.own("release", resources).cells:
            if "nbgrader" not in cell.metadata:
                continue
            name = cell.metadata.nbgrader.grade_id
            if name not in present:
                place = next((i for i, one in enumerate(nb.cells) if one is before), -1) + 1
                nb.cells.insert(place, cell)
                present[name] = cell
            before = present[name]
        return nb, resources


class RunExercises(CoursePreprocessor):
    """Runs the exercises of a submission in a sandbox, see `sandbox` and `worker`; other cells are left as they are.

    The setup cells are the course's own. A setup cell that the student changed is run as well, as part of each answer.
    """

    isolation = Unicode("", help="container, namespaces or none; empty: the first that works and isolates").tag(
        config=True
    )
    exercise_seconds = Integer(60, help="CPU time of an answer and its check; four times as long by the clock").tag(
        config=True
    )
    setup_seconds = Integer(120, help="time by the clock for starting Python and the setup cells").tag(config=True)
    memory_mb = Integer(4000, help="most memory, of all processes of a submission together").tag(config=True)
    processes = Integer(100, help="most processes of a submission").tag(config=True)
    output_characters = Integer(200_000, help="of each exercise; the rest is cut").tag(config=True)
    seed = Integer(help="LABKIT_CHECK_SEED, from which checks draw; the same for all students of a run").tag(
        config=True
    )

    def _seed_default(self) -> int:
        return int(os.environ.setdefault("LABKIT_CHECK_SEED", str(secrets.randbelow(2**31))))

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """The notebook with the outputs of its answers and checks."""
        setup = [cell for cell in self.own("source", resources).cells if is_setup(cell)]
        known = {cell.source.strip() for cell in setup}
        changed = [cell for cell in nb.cells if is_setup(cell) and cell.source.strip() not in known]
        cells = {f"setup {number}": cell for number, cell in enumerate(setup)}
        exercises, answer = [], []
        for number, cell in enumerate(nb.cells):
            if cell.cell_type == "code" and is_marked(cell):
                cells[key := str(number)] = cell
                cell.outputs = []
                answer.append([key, cell.source])
                if is_grade(cell):
                    exercises.append([*(["changed setup", cell.source] for cell in changed), *answer])
                    answer = []
        request = {"setup": [[key, cell.source] for key, cell in cells.items() if key.startswith("setup")]}
        self.apply(self.run(request | {"exercises": exercises}), cells, exercises)
        return nb, resources

    def run(self, request: dict) -> list[dict]:
        """What the worker answers.

        Raises:
            RuntimeError: if no sandbox works here, or the setup cells fail, which are the course's own.
        """
        kind = sandbox.choose(self.isolation)
        names = ("exercise_seconds", "memory_mb", "processes", "output_characters")
        limits = {name: getattr(self, name) for name in names}
        # A safety net: the worker keeps the limit of each exercise.
        limits["whole_seconds"] = self.setup_seconds + (4 * self.exercise_seconds + 5) * len(request["exercises"])
        with sandbox.start(kind, self.seed, self.memory_mb, self.processes) as worker:
            try:
                text = json.dumps(request | {"limits": limits}) + "\n"
                answer, errors = worker.communicate(text.encode(), timeout=limits["whole_seconds"] + 30)
            except subprocess.TimeoutExpired:
                worker.kill()
                answer, errors = worker.communicate()
        messages = [json.loads(line) for line in answer.decode(errors="replace").splitlines() if line.endswith("}")]
        if {"setup": True} not in messages:
            told = [message["output"]["evalue"] for message in messages if "evalue" in message.get("output", {})]
            raise RuntimeError(f"the course's own setup cells fail in the sandbox ({kind}): {told or errors.decode()}")
        return messages

    def apply(self, messages: list[dict], cells: dict[str, NotebookNode], exercises: list[list[list[str]]]) -> None:
        """Write outputs into the cells, an error into those that did not run to their end: no output means points."""
        ended = {message["exercise"]: message["ended"] for message in messages if "exercise" in message}
        done = {message["cell"] for message in messages if "done" in message}
        for message in messages:
            cell = cells.get(str(message.get("cell")))
            if cell is not None and "output" in message:
                append(cell, nbformat.from_dict(message["output"]))
        for number, exercise in enumerate(exercises):
            why = ended.get(number, "time: the submission as a whole took too long")
            for key, _ in exercise:
                if key in cells and key not in done:
                    error = {
                        "output_type": "error",
                        "ename": STOPPED,
                        "evalue": why,
                        "traceback": [f"{STOPPED}: {why}"],
                    }
                    cells[key].outputs.append(nbformat.from_dict(error))


def append(cell: NotebookNode, output: NotebookNode) -> None:
    """Add an output to a cell. What a check lets an answer write to stderr, a warning for instance, costs no points."""
    try:
        nbformat.validate(output, ref="output", version=4)
    except nbformat.ValidationError:
        return  # not written by the worker
    if output.output_type == "stream" and is_grade(cell):
        output.name = "stdout"
    last = cell.outputs[-1] if cell.outputs else {}
    if output.output_type == "stream" and last.get("name") == output.name:
        last.text += output.text
    else:
        cell.outputs.append(output)
