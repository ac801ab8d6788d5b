"""No cheat gets more points than an honest answer, and each is named, so that a teacher sees it.

A cheat is a file like a wrong answer, after which it is also named:

    tests/labcourse/cheats/01/cycle_loss/the_check_replaced.py

The first line is `# expects: ` and a fragment of the error that its answer or its check shows when it is graded. Some
would get by at home, where a check asks for no other inputs and nobody looks at a cell before it runs.
"""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from test_assignments import EXERCISES, NOTEBOOKS, OF_DRAWN_DATA, ROOT, Exercise

from labcourse.check.cells import plain
from labcourse.check.originality import tampering
from tools.assignments import without_our_own
from tools.grading import sandbox
from tools.grading.execute import RunExercises, is_wrong

CHEATS = ROOT / "tests" / "labcourse" / "cheats"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="grading forks a process for each exercise")


def cheats(exercise: Exercise) -> list[Path]:
    return sorted((CHEATS / exercise.notebook[:2] / exercise.name).glob("*py"))


def run(exercise: Exercise, *answer: str) -> tuple[list[str], bool]:
    """Of an exercise's cells the errors, and whether its check passed."""
    marked, check = {"grade_id": exercise.name, "solution": True}, {"grade_id": f"{exercise.name}_check", "grade": True}
    cells = [new_code_cell(source, metadata={"nbgrader": marked}) for source in answer]
    cells.append(new_code_cell(exercise.check, metadata={"nbgrader": check}))
    RunExercises(isolation="none", seed=1).run(cells, [*exercise.setup], exercise.notebook)
    return [output.evalue for cell in cells for output in cell.outputs if "evalue" in output], not is_wrong(cells[-1])


@pytest.fixture(scope="module", autouse=True)
def sandbox_ends():
    yield
    RunExercises.end()


WITH_CHEATS = [exercise for exercise in EXERCISES if cheats(exercise)]


@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one.name not in OF_DRAWN_DATA], ids=str)
def test_the_solution_passes_while_cheats_are_looked_for(exercise):
    assert run(exercise, exercise.solution) == ([], True)


@pytest.mark.parametrize(
    ("exercise", "path"), [pytest.param(one, path, id=path.stem) for one in WITH_CHEATS for path in cheats(one)]
)
def test_a_cheat_gets_no_points_and_is_named(exercise, path):
    first, _, answer = path.read_text(encoding="utf-8").partition("\n")
    expected = first.removeprefix("# expects: ")
    errors, passed = run(exercise, answer)
    assert not passed
    assert any(re.search(re.escape(expected), error, re.IGNORECASE) for error in errors), errors


def test_every_cheat_belongs_to_an_exercise():
    assert set(CHEATS.rglob("*py")) == {path for one in EXERCISES for path in cheats(one)}


def test_what_is_refused_in_grading_is_refused_at_home_in_the_same_words(monkeypatch):
    exercises = {one.name: one for one in EXERCISES if one.notebook.startswith("03")}
    busy, by_cause = exercises["busy"], exercises["idle_by_cause"]
    answers = [
        (busy, "import os\nfolder = os.getcwd()", busy.solution),  # of no use to the answer
        (by_cause, by_cause.solution),
        (busy, "import pickle\ndef helper(x): return pickle.dumps(x)", f"mine = helper([])\n{busy.solution}"),
        (by_cause, f"import socket\n{by_cause.solution}"),
    ]
    graded = [run(*answer) for answer in answers]
    RunExercises.end()
    variables = sandbox.environment(1)
    del variables["LABKIT_CHECK_SEED"]
    monkeypatch.setattr(sandbox, "environment", lambda seed: variables)
    at_home = [run(*answer) for answer in answers]
    RunExercises.end()
    assert [passed for _, passed in at_home] == [passed for _, passed in graded] == [True, True, False, False]
    for (home, _), (marked, _) in zip(at_home[2:], graded[2:], strict=True):
        assert "is not allowed in an answer" in home[0] and home[0] in marked


@pytest.mark.parametrize("exercise", EXERCISES, ids=str)
def test_no_honest_answer_is_taken_for_a_cheat(exercise):
    honest = [
        exercise.solution,
        exercise.untouched,
        *(one.made_in(exercise.solution) for one in exercise.wrong_answers),
    ]
    assert [tampering(answer) for answer in honest] == [None] * len(honest)
    # Setup cells after the first one run when cells are looked at already.
    assert [tampering(cell) for cell in exercise.setup[1:]] == [None] * len(exercise.setup[1:])


@pytest.mark.parametrize(
    "answer",
    [
        "import socket",
        "from labcourse import check as judge",
        "import labcourse\nlabcourse.check.hidden = print",
        "torch.equal = print",
        "del torch.equal",
        "torch.nn.Conv2d.forward += 1",
        "mock.patch('torch.equal').start()",
        "busy.__globals__['np'] = None",
        "[base for base in object.__subclasses__()]",
        "def f(): __builtins__['all'] = print",
        "torch.library.impl('aten::equal', 'CPU')(print)",
        "if False:\n    sys = 1\nsys.modules.clear()",
        "import torch._C",
        "from torch import sys as s",
        "if False:\n    open = 1\nopen('marks')",
        "class A:\n    if False:\n        exec = 1\n    exec('text')",
        "match busy:\n    case object(__globals__=names):\n        pass",
        "import numpy as np\nnp.x['a'] = 1",
    ],
)
def test_a_look_at_the_source_names_it(answer):
    assert "is not allowed" in tampering(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "if __name__ == '__main__':\n    print(busy([], []))",
        "def levels(begin):\n    open = 0\n    for one in begin:\n        open += one\n    return open",
        "class Pair:\n    __slots__ = ('a', 'b')",
        "numbers['two'] = 2",
        "from pathlib import Path\nPath('out').mkdir(exist_ok=True)",  # lines of the course's own, of notebook 03
    ],
)
def test_a_look_at_the_source_accuses_nobody_of_what_is_harmless(answer):
    assert tampering(answer) is None


def test_a_refusal_names_the_cell_and_its_line():
    told = tampering("def helper():\n    pass\n\nvars(helper)")
    assert told.startswith("in the cell that begins with `def helper():`, line 4: `vars` is not allowed")


def test_cells_of_the_course_are_not_refused():
    cells = [cell for path in NOTEBOOKS for cell in without_our_own(nbformat.read(path, as_version=4)).cells]
    code = [plain(cell.source) for cell in cells if cell.cell_type == "code"]
    assert {tampering(cell) for cell in code} == {None}
