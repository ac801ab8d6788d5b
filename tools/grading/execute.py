"""nbgrader's preprocessors of this course: what it does to a submission before and while it runs it.

`nbgrader_config.py` puts them into the place of nbgrader's own, so `nbgrader autograde` and formgrader have them, too.
"""

import ast
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Dict, Integer, Unicode

from labkit.course.check.cells import needed, plain
from tools.grading.sandbox import Sandbox, choose

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


def name_of(cell: NotebookNode) -> str:
    """nbgrader's name of a cell, "" if it has none."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


class CoursePreprocessor(NbGraderPreprocessor):
    """Knows the course's own notebook."""

    def own(self, stage: str, resources: dict) -> NotebookNode:
        """The course's notebook of a submission; `stage` is "source", with solutions, or "release", without."""
        course, names = CourseDirectory(parent=self), resources["nbgrader"]
        folder = course.format_path(getattr(course, f"{stage}_directory"), ".", names["assignment"])
        return nbformat.read(Path(folder) / f"{names['notebook']}.ipynb", as_version=4)


class RestoreCells(CoursePreprocessor):
    """Puts deleted answers and checks back, and makes one answer of a copied or split one: nbgrader loses both.

    What a student wrote into a setup cell, which nbgrader restores, becomes a cell after it.
    """

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """A notebook that has each marked cell once, in any order in which the student has them."""
        unite(nb)
        own = self.own("release", resources).cells
        courses = {name_of(cell): cell for cell in own if name_of(cell)}
        setup = {line for cell in own if is_setup(cell) for line in statements(cell.source)}
        for place, cell in reversed([*enumerate(nb.cells)]):
            if is_setup(cell) and (added := [line for line in statements(cell.source) if line not in setup]):
                nb.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(added)))
        for cell in nb.cells:
            if name_of(cell) not in courses:  # not the course's, or of an older version of it
                cell.metadata.pop("nbgrader", None)
        present = {name_of(cell): cell for cell in nb.cells}
        before = None
        for name, cell in courses.items():
            if name not in present:
                place = next((i for i, one in enumerate(nb.cells) if one is before), -1) + 1
                nb.cells.insert(place, cell)
                present[name] = cell
            before = present[name]
        return nb, resources


def copies(nb: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The marked cells that a notebook has more than once, as JupyterLab makes them of a copied or split cell."""
    found: dict[str, list[NotebookNode]] = {}
    for cell in nb.cells:
        if name := name_of(cell):
            found.setdefault(name, []).append(cell)
    return {name: cells for name, cells in found.items() if len(cells) > 1}


def statements(source: str) -> list[str]:
    """The statements of a cell, without comments. There are none in one that is no Python."""
    with suppress(SyntaxError):
        return [ast.unparse(line) for line in ast.parse(plain(source)).body]
    return []


def unite(nb: NotebookNode) -> None:
    """Make one cell of the copies of a cell: of an answer, all parts above its check, in the order they run in."""
    for name, cells in copies(nb).items():
        checks = [i for i, cell in enumerate(nb.cells) if name_of(cell) == f"{name}_check"]
        last = checks[0] if checks else len(nb.cells)
        parts = [cell for cell in nb.cells[:last] if any(cell is one for one in cells)] or cells
        if is_solution(parts[0]):
            parts[0].source = "\n\n".join(cell.source for cell in parts)
        for cell in cells:
            if cell is not parts[0]:
                del cell.metadata["nbgrader"]


class RunExercises(CoursePreprocessor):
    """Runs the exercises of a submission in a sandbox, see `sandbox` and `worker`; other cells are left as they are.

    The setup cells are the course's own. Every other cell above whose names the answer or its check use is run as well,
    as part of the answer: see `labkit.course.check.cells`.
    """

    isolation = Unicode(help="container, namespaces or none; empty: the first that works").tag(config=True)
    exercise_seconds = Integer(30, help="CPU time of an exercise; by the clock four times as much").tag(config=True)
    longer = Dict({"12_speedrun": 1200}, help="exercise_seconds of notebooks whose answers train").tag(config=True)
    setup_seconds = Integer(300, help="time by the clock for starting Python and the setup cells").tag(config=True)
    memory_mb = Integer(4000, help="most memory, of all processes of an exercise together").tag(config=True)
    processes = Integer(100, help="most processes of an exercise").tag(config=True)
    output_characters = Integer(200_000, help="of each exercise; the rest is cut").tag(config=True)
    seed = Integer(help="LABKIT_CHECK_SEED of a run, from which checks draw").tag(config=True)

    started: tuple[tuple, Sandbox] | None = None  # with what it was started, shared by all

    def _seed_default(self) -> int:
        return int(os.environ.setdefault("LABKIT_CHECK_SEED", str(secrets.randbelow(2**31))))

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """The notebook with the outputs of its answers and checks."""
        setup = [cell.source for cell in self.own("source", resources).cells if is_setup(cell)]
        exercise: list[NotebookNode] = []
        above = []
        for cell in nb.cells:
            if cell.cell_type != "code" or is_setup(cell):
                continue
            above.append(cell)
            if not is_marked(cell):
                continue
            cell.outputs = []
            exercise.append(cell)
            if is_grade(cell):
                its_own = {place for place, one in enumerate(above) if any(one is other for other in exercise)}
                cells = [above[place] for place in needed([one.source for one in above], its_own)]
                self.run(cells, exercise, setup, resources["nbgrader"]["notebook"])
                above.pop()  # no other exercise needs a check
                exercise = []
        return nb, resources

    def run(self, cells: list[NotebookNode], exercise: list[NotebookNode], setup: list[str], notebook: str) -> None:
        """Run an exercise and write outputs into its cells; an error into those that did not run to their end.

        Args:
            cells: those of the exercise, and what it needs, in their order.
            exercise: the answers and the check, whose outputs count.
            setup: the course's setup cells.
            notebook: its name.

        Raises:
            RuntimeError: if no sandbox works here, or the course's own setup cells fail in it.
        """
        sources = [(str(place), plain(cell.source)) for place, cell in enumerate(cells)]
        messages, ended = self.sandbox(setup, notebook).run(sources)
        marked = {str(place): cell for place, cell in enumerate(cells) if any(cell is one for one in exercise)}
        for message in messages:
            if message.get("cell") in marked and "output" in message:
                append(marked[message["cell"]], nbformat.from_dict(message["output"]))
        done = {message.get("cell") for message in messages if "done" in message}
        stop([cell for key, cell in marked.items() if key not in done], ended or "crashed: nothing came from it")
        if is_wrong(exercise[-1]):  # then the cells that it needs may say why: one of them fails, or is refused
            errors = [
                one["output"] for one in messages if one["cell"] not in marked and "evalue" in one.get("output", {})
            ]
            exercise[0].outputs[:0] = map(nbformat.from_dict, errors)
        stop([exercise[-1]] if is_silent(exercise[-1]) else [], "unconfirmed: the check did not say that it is right")

    def sandbox(self, setup: list[str], notebook: str) -> Sandbox:
        """The sandbox in which these setup cells have run. It stays for the next submission."""
        names = ("exercise_seconds", "setup_seconds", "memory_mb", "processes", "output_characters")
        limits = {name: getattr(self, name) for name in names}
        limits["exercise_seconds"] = self.longer.get(notebook, self.exercise_seconds)
        wanted = (choose(self.isolation), setup, limits, self.seed)
        if self.started is None or self.started[0] != wanted or self.started[1].worker.poll() is not None:
            self.end()
            kind, _, limits, seed = wanted
            sandbox = Sandbox(kind, [(f"setup {number}", source) for number, source in enumerate(setup)], limits, seed)
            type(self).started = (wanted, sandbox)
        return self.started[1]

    @classmethod
    def end(cls) -> None:
        """End the sandbox. Without this it ends with the program, or when it has not been used for some minutes."""
        if cls.started:
            cls.started[1].close()
            cls.started = None


def is_wrong(check: NotebookNode) -> bool:
    """Whether a check ended with an error."""
    return any(output.output_type == "error" for output in check.outputs)


def is_silent(check: NotebookNode) -> bool:
    """Whether a check ended without an error, but did not say of each of its calls that the answer is right."""
    text = "".join(output.get("text", "") for output in check.outputs)
    said = text.count(f"✓ {name_of(check).removesuffix('_check')}: right")
    return not is_wrong(check) and said < len(re.findall(r"^check\.", check.source, re.MULTILINE))


def stop(cells: list[NotebookNode], why: str) -> None:
    """Write an error into cells that did not run to their end. Without any output nbgrader would give points."""
    for cell in cells:
        cell.outputs.append(nbformat.v4.new_output("error", ename=STOPPED, evalue=why, traceback=[f"{STOPPED}: {why}"]))


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
