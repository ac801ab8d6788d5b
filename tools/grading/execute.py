"""nbgrader's preprocessors of this course: what it does to a submission before and while it runs it.

`nbgrader_config.py` puts them into the place of nbgrader's own, so `nbgrader autograde` and formgrader have them, too.
nbgrader calls `preprocess` of each, which takes a notebook and nbgrader's resources, and returns both. The way of one
answer: `RunExercises.preprocess` picks the cells it needs, `Sandbox.run` sends them to the process of worker.py, and
`run_exercise` there runs them in a fork of that process. `judge` runs the check here. It asks the fork what the answer
returns for its inputs, and knows what is right, which the fork does not.
"""

import ast
import builtins
import io
import json
import os
import secrets
from contextlib import redirect_stdout, suppress
from copy import deepcopy
from itertools import takewhile
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_locked, is_solution
from traitlets import Dict, Integer, Unicode

from labcourse.check import answers
from labcourse.check.answers import AnswerStopped
from labcourse.check.cells import needed, plain
from labcourse.plain_values import Other, decode
from tools.grading.sandbox import Sandbox, choose

STOPPED = "Stopped"  # the name of the error of a cell that was not run to its end
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


class RunExercises(CoursePreprocessor):
    """Runs the exercises of a submission in a sandbox, see `sandbox` and `worker`; other cells are left as they are.

    The setup cells are the course's own. An earlier cell that defines a name which the answer or its check uses runs
    as well, as part of the answer: see `labcourse.check.cells`.
    """

    isolation = Unicode(help="container, namespaces or none; empty: the first that works").tag(config=True)
    exercise_seconds = Integer(30, help="CPU time of an exercise; by the clock four times as much").tag(config=True)
    longer = Dict({"12_speedrun": 1200}, help="exercise_seconds of notebooks whose answers train").tag(config=True)
    memory_mb = Integer(4000, help="most memory, of all processes of an exercise together").tag(config=True)
    seed = Integer(help="LABKIT_CHECK_SEED of a run, from which checks draw").tag(config=True)

    started: tuple[tuple, Sandbox] | None = None  # with what it was started, shared by all

    def _seed_default(self) -> int:
        return int(os.environ.setdefault("LABKIT_CHECK_SEED", str(secrets.randbelow(2**31))))

    def preprocess(self, nb: NotebookNode, resources: dict) -> Conversion:
        """The notebook with the outputs of its answers and checks."""
        released = self.released_cells(resources)
        setup, course = [cell.source for cell in released if is_setup(cell)], {cell.source for cell in released}
        above: list[NotebookNode] = []
        for cell in nb.cells:
            if cell.cell_type == "code" and is_grade(cell):
                cells = [*above, cell]
                its_own = {place for place, one in enumerate(cells) if exercise_of(one) == exercise_of(cell)}
                written = {place for place, one in enumerate(above) if one.source not in course}
                places = needed([one.source for one in cells], its_own, written)
                self.run([cells[place] for place in places], setup, resources["nbgrader"]["notebook"])
            elif cell.cell_type == "code" and not is_setup(cell):
                above.append(cell)
        return nb, resources

    def run(self, cells: list[NotebookNode], setup: list[str], notebook: str) -> None:
        """Run an exercise and write outputs into its cells; an error into those that did not run to their end.

        The cells run in the sandbox, and the check, the last one, here: it asks the answer there for plain values.

        Args:
            cells: those of the exercise, and what it needs, in their order.
            setup: the course's setup cells.
            notebook: its name.

        Raises:
            RuntimeError: if no sandbox works here, or the course's own setup cells fail in it.
        """
        *others, check = cells
        sandbox = self.sandbox(setup, notebook)
        results, ended = sandbox.run([plain(cell.source) for cell in others])
        lost = stopped(ended or "crashed: nothing came from it")
        results += [dict(text="", error=lost, goes_on=False, absent=[])] * (len(others) - len(results))
        errors = []
        answer = [cell for cell in others if exercise_of(cell) == exercise_of(check)]
        for cell, result in zip(others, results, strict=True):
            error = [new_output("error", **result["error"])] if result["error"] else []
            if cell in answer:
                cell.outputs = _printed(result["text"])
            if cell in answer and not result["goes_on"]:
                cell.outputs += error
            else:
                errors += error
        os.environ["LABKIT_CHECK_SEED"] = str(self.seed)
        check.outputs = [new_output("error", **stopped(ended))] if ended else judge(check.source, sandbox)
        sandbox.end_exercise()
        if is_wrong(check):  # then the cells that it needs may say why: one of them fails, or lacks a module
            [*answer, check][0].outputs[:0] = errors
            if absent := ", ".join(sorted({name for result in results for name in result["absent"]})):
                wrong = check.outputs[-1]
                wrong.evalue += f" (Not installed where answers are graded: {absent}.)"
                wrong.traceback = [f"{wrong.ename}: {wrong.evalue}"]

    def sandbox(self, setup: list[str], notebook: str) -> Sandbox:
        """The sandbox in which these setup cells have run. It stays for the next submission."""
        seconds = self.longer.get(notebook, self.exercise_seconds)
        limits = {"exercise_seconds": seconds, "memory_mb": self.memory_mb}
        wanted = (choose(self.isolation), setup, limits, notebook)
        if self.started is None or self.started[0] != wanted or self.started[1].worker.poll() is not None:
            self.end()
            type(self).started = (wanted, Sandbox(*wanted))
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


def stopped(why: str) -> dict:
    """The error of a cell that did not run to its end. Without any output nbgrader would give points."""
    return {"ename": STOPPED, "evalue": why, "traceback": [f"{STOPPED}: {why}"]}


def judge(check: str, sandbox: Sandbox) -> list[NotebookNode]:
    """The outputs of a check's cell, which runs here; the names of the answer are asked for in the sandbox."""
    printed, error = io.StringIO(), None
    torch.set_num_threads(1)  # the tensors are small
    answers.WORKERS.append(sandbox.ask)
    try:
        with redirect_stdout(printed):
            exec(compile(check, "the check", "exec"), {}, Namespace(sandbox))
    except AnswerStopped as why:
        error = stopped(str(why))
    except Exception as wrong:
        told = f"{type(wrong).__name__}: {wrong}"
        error = {"ename": type(wrong).__name__, "evalue": str(wrong), "traceback": [told]}
    finally:
        answers.WORKERS.pop()
    return [*_printed(printed.getvalue()), *([new_output("error", **error)] if error else [])]


class Namespace(dict[str, Any]):
    """The names of a check's cell. Those that it does not set itself are the student's, or Python's own."""

    def __init__(self, sandbox: Sandbox):
        super().__init__()
        self.sandbox = sandbox

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        told = json.loads(self.sandbox.ask(json.dumps({"name": name, "given": None})))
        if "value" not in told:
            raise KeyError(name)
        value = decode(told["value"])
        return answers.Elsewhere(name) if isinstance(value, Other) else value


def _printed(text: str) -> list[NotebookNode]:
    return [new_output("stream", name="stdout", text=text)] if text else []
