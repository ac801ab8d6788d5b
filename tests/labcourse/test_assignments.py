"""Every exercise of every notebook can be solved, and wrong answers get the message meant for them.

An exercise is a solution cell (nbgrader: solution, grade_id `residual_block`) and its check cell (nbgrader: grade,
locked, points, grade_id `residual_block_check`), which imports `check` itself and has hidden tests. It may use what the
locked cells tagged `setup` of its notebook define, and nothing else. Its wrong answers, two at least, stand in
tools/wrong_answers; CONTRIBUTING.md describes the tables there. Those in right_answers have an answer only.
"""

import contextlib
import functools
import importlib
import re
import symtable
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearSolutions
from torch import nn
from traitlets.config import PyFileConfigLoader

from labcourse.check.answers import ask
from labcourse.check.side_effects import CHANGED, LOOKS
from tools import assignments
from tools.grading.report import known

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RIGHT_ANSWERS = ROOT / "tests" / "labcourse" / "right_answers"
OF_DRAWN_DATA = {"my_entry"}  # the speedrun's judge draws its data, also where nothing is graded
NBGRADER = PyFileConfigLoader(str(ROOT / "nbgrader_config.py")).load_config()


@dataclass
class Exercise:
    """One exercise, as source code."""

    notebook: str
    name: str
    setup: tuple[str, ...]
    solution: str
    check: str
    untouched: str

    @property
    def wrong_answers(self) -> dict[str, dict]:
        """The wrong answers to it."""
        return known(self.notebook).get(self.name, {})

    @property
    def right_answers(self) -> dict[str, dict[str, str]]:
        """Answers that are right in another way than the solution."""
        return known(self.notebook, RIGHT_ANSWERS).get(self.name, {})

    def __str__(self) -> str:
        return f"{self.notebook.partition('_')[0]}-{self.name}"


def mark(cell: NotebookNode, key: str) -> str | bool | None:
    """What nbgrader's marks on a cell say about `key`, None without marks."""
    return cell.metadata.get("nbgrader", {}).get(key)


def is_setup(cell: NotebookNode) -> bool:
    return "setup" in cell.metadata.get("tags", [])


def exercises(path: Path) -> list[Exercise]:
    """The exercises of a notebook; fails where one is marked differently from the docstring above."""
    cells = nbformat.read(path, as_version=4).cells
    student, _ = ClearSolutions(config=NBGRADER).preprocess(nbformat.read(path, as_version=4), {})
    setup = tuple(cell.source for cell in cells if is_setup(cell))
    marked = [(cell, sold) for cell, sold in zip(cells, student.cells, strict=True) if mark(cell, "grade_id")]
    code = [(cell, sold) for cell, sold in marked if mark(cell, "solution") or mark(cell, "grade")]
    code = [(cell, sold) for cell, sold in code if cell.cell_type == "code"]
    found = []
    for (solution, untouched), (check, _) in zip(code[::2], code[1::2], strict=True):
        name = mark(solution, "grade_id")
        where = f"{path.name}, exercise {name}"
        assert mark(solution, "solution") and not mark(solution, "grade"), f"{where}: mark it as a solution only"
        assert mark(check, "grade_id") == f"{name}_check", f"{where}: the next marked cell is to be {name}_check"
        assert mark(check, "grade") and mark(check, "locked") and mark(check, "points"), f"{where}: mark the check"
        hidden = f"check.hidden(check.{name}, " in check.source
        assert hidden or name in OF_DRAWN_DATA, f"{where}: a hidden test runs the check again with other inputs"
        afresh = check.source.startswith(f"from labcourse import check\n\ncheck.{name}(")
        assert afresh, f"{where}: the check begins with its import: `check` may be a name of the student"
        found.append(Exercise(path.stem, name, setup, solution.source, check.source, untouched.source))
    return found


def written_answers(path: Path) -> list[tuple[NotebookNode, NotebookNode, NotebookNode]]:
    """Of each Markdown cell that a person marks, the text above it, the cell itself, and the students' cell."""
    cells = nbformat.read(path, as_version=4).cells
    student, _ = ClearSolutions(config=NBGRADER).preprocess(nbformat.read(path, as_version=4), {})
    pairs = zip(cells, cells[1:], student.cells[1:], strict=False)
    return [one for one in pairs if one[1].cell_type == "markdown" and mark(one[1], "grade")]


EXERCISES = [exercise for path in NOTEBOOKS for exercise in exercises(path)]
DEAR = ("my_entry", "streams", "light_block")  # whole trainings; steps and networks followed operator by operator


def case(exercise: Exercise, *more: object, name: str = "") -> object:
    """A case of a test of exercises, in its tier."""
    return pytest.param(exercise, *more, id=f"{exercise}{name}", marks=[pytest.mark.slow] * (exercise.name in DEAR))


@functools.cache
def after_setup(setup: tuple[str, ...]) -> dict[str, object]:
    """The names that setup cells define. They are run once; every answer gets a copy of the dict of names."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for source in setup:
        exec(source, namespace)
    return namespace


def run(exercise: Exercise, answer: str, parts: slice = slice(2)) -> None:
    """Run answer and check on the names of the setup cells. A TODO stops only its own cell, as in Jupyter.

    A check has two parts, the one that students see and the hidden test.
    """
    if exercise.name in OF_DRAWN_DATA and sys.platform == "win32":
        pytest.skip("the speedrun's judge needs Linux or macOS")
    namespace = dict(after_setup(exercise.setup))
    with contextlib.suppress(NotImplementedError):
        exec(answer, namespace)
    exec("".join(exercise.check.split("### BEGIN HIDDEN TESTS")[parts]), namespace)


def test_setup_cells_leave_nothing_that_answers_could_share():
    for setup in {exercise.setup for exercise in EXERCISES}:
        shared = [name for name, value in after_setup(setup).items() if isinstance(value, torch.Tensor | nn.Module)]
        assert not shared, "an answer may change these in place: run this setup again for each answer"


# The cells of notebook 12 train its solution for a minute: once is enough.
@pytest.mark.parametrize("exercise", [case(one) for one in EXERCISES if one.name not in OF_DRAWN_DATA])
def test_the_solution_passes(exercise, capsys, monkeypatch):
    asked = []

    def noted(answer, *given, **hint):
        asked.append([LOOKS[CHANGED](one) for one in given if not isinstance(one, nn.Module)])
        return ask(answer, *given, **hint)

    for module in ("answers", f"notebook_{exercise.notebook.partition('_')[0]}"):
        monkeypatch.setattr(importlib.import_module(f"labcourse.check.{module}"), "ask", noted, raising=False)
    run(exercise, exercise.solution)
    assert not capsys.readouterr().err, "nbgrader gives no points where a check writes to stderr"
    assert not [values[0] for values in zip(*asked, strict=True) if len({*values}) == 1], (
        "an argument that is the same in the hidden test may be a number typed into an answer"
    )


@pytest.mark.parametrize("exercise", EXERCISES, ids=str)
def test_untouched_it_fails_and_two_wrong_answers_are_known(exercise):
    assert len(exercise.wrong_answers) >= 2, "CONTRIBUTING.md says how to add one"
    assert "# TODO: your code here" in exercise.untouched and "SOLUTION" not in exercise.untouched
    with pytest.raises((NameError, AssertionError), match="is not (written yet|defined)"):
        run(exercise, exercise.untouched)


def made_in(solution: str, mistake: dict) -> str:
    """The wrong answer as a student would have written it into the cell."""
    for edit in mistake.get("edits", [mistake] if "old" in mistake else []):
        assert solution.count(edit["old"]) == 1, "the solution has changed: an edit fits nowhere, or in several places"
        solution = solution.replace(edit["old"], edit["new"])
    return mistake.get("answer", solution)


WRONG = [case(one, answer, name=f"-{name}") for one in EXERCISES for name, answer in one.wrong_answers.items()]


@pytest.mark.parametrize(("exercise", "mistake"), WRONG)
def test_a_wrong_answer_gets_the_message_meant_for_it_at_home(exercise, mistake):
    with pytest.raises(AssertionError, match=f"(?i){re.escape(mistake['expects'])}") as told:
        run(exercise, made_in(exercise.solution, mistake), slice(1))
    assert len(told.value._render_traceback_()) <= 6


RIGHT = [case(one, own["answer"], name=f"-{name}") for one in EXERCISES for name, own in one.right_answers.items()]
SOLVED = [case(one, one.solution, name="-solution") for one in EXERCISES if one.name not in OF_DRAWN_DATA]


@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
def test_an_answer_that_is_right_in_another_way_passes(exercise, answer):
    run(exercise, answer)
    assert not torch.is_autocast_enabled("cuda"), "a check left something on"


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "answer"), RIGHT + SOLVED)
def test_a_right_answer_is_right_with_every_seed_of_a_class(exercise, answer, monkeypatch):
    for seed in range(3):
        monkeypatch.setenv("LABKIT_CHECK_SEED", str(seed))
        run(exercise, answer, slice(1, 2))


WRITTEN = [one for path in NOTEBOOKS for one in written_answers(path)]


@pytest.mark.parametrize("question, answer, students", WRITTEN, ids=[mark(one[1], "grade_id") for one in WRITTEN])
def test_a_written_answer_has_a_point_for_each_row_of_its_rubric(question, answer, students):
    name, rows = mark(answer, "grade_id"), re.findall(r"^\| (\w+) \| \w", question.source, flags=re.MULTILINE)
    assert re.search(rf"^### Exercise \d+ · {name}$", question.source, flags=re.MULTILINE)
    assert mark(answer, "solution") and not mark(answer, "locked") and mark(answer, "points") == len(rows) > 0
    assert students.source == "YOUR ANSWER HERE" != answer.source


def test_setup_cells_are_locked_and_load_the_checks():
    for path in NOTEBOOKS:
        first, *others = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        setup = [cell for cell in others if is_setup(cell)]
        assert all(mark(cell, "locked") and mark(cell, "grade") is False for cell in (first, *setup)), path.name
        # Students call a check in cells of their own, too.
        assert re.search(r"import .*\bcheck\b", setup[0].source), path.name
        number = path.name.partition("_")[0]
        assert f'ledger = Ledger("{number}")' in setup[0].source


def test_every_wrong_answer_belongs_to_an_exercise():
    names = {(one.notebook, one.name) for one in EXERCISES}
    assert {(path.stem, exercise) for path in NOTEBOOKS for exercise in known(path.stem)} <= names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_students_do_not_get_what_serves_the_authors_and_miss_nothing(path):
    notebook = nbformat.read(path, as_version=4)
    claims = [cell.source for cell in notebook.cells if "claims" in cell.metadata.get("tags", [])]
    students = assignments.without_our_own(notebook)
    assert claims and len(students.cells) > len(claims) and not assignments.SOLVED.search(students.cells[0].source)
    code = "\n".join(cell.source for cell in students.cells if cell.cell_type == "code")
    assert not any(claim in code for claim in claims)
    theirs, ours = (symtable.symtable(text, path.name, "exec") for text in (code, "\n".join(claims)))
    assigned = {one.get_name() for one in theirs.get_symbols() if one.is_assigned() or one.is_imported()}
    only_ours = {one.get_name() for one in ours.get_symbols() if one.is_assigned()} - assigned
    used = {one.get_name() for one in theirs.get_symbols()}
    assert not only_ours & used, "a later cell needs a name of a claims cell"
