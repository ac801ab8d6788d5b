"""No cheat gets more points than an honest answer, and each is named, so that a teacher sees it.

A cheat is a file like a wrong answer, after which it is also named:

    tests/cheats/01/cycle_loss/the_check_replaced.py

The first line is `# expects: ` and a fragment of the error that its answer or its check shows when it is graded. Some
would get by at home, where a check asks for no other inputs and nobody looks at a cell before it runs.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_assignments import EXERCISES, ROOT, Exercise

from labkit.course.check.source import tampering

CHEATS = ROOT / "tests" / "cheats"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="tests/graded.py forks a process for each exercise")


def cheats(exercise: Exercise) -> list[Path]:
    return sorted((CHEATS / exercise.notebook[:2] / exercise.name).glob("*py"))


def run(setup: tuple[str, ...], exercises: list[list[str]], **variables: str) -> list[tuple[list[str], bool]]:
    """Of each exercise's cells the errors, and whether the last one, its check, passed."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}
    program = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "graded.py")]
    asked = json.dumps({"setup": setup, "exercises": exercises})
    output = subprocess.run(program, input=asked, env=variables, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


@functools.cache
def graded(notebook: str) -> dict[str, tuple[list[str], bool]]:
    """The errors and whether the check passed, by the exercise's name for its solution, by file for each cheat."""
    cells: dict[str, list[str]] = {}
    here = [exercise for exercise in EXERCISES if exercise.notebook == notebook]
    for exercise in here:
        cells[exercise.name] = [exercise.solution, exercise.check]
        cells |= {
            str(path): [path.read_text(encoding="utf-8").split("\n", 1)[1], exercise.check] for path in cheats(exercise)
        }
    return dict(zip(cells, run(here[0].setup, [*cells.values()], LABKIT_CHECK_SEED="1"), strict=True))


WITH_CHEATS = [exercise for exercise in EXERCISES if cheats(exercise)]


@pytest.mark.parametrize("exercise", WITH_CHEATS, ids=str)
def test_the_solution_passes_while_cheats_are_looked_for(exercise):
    assert graded(exercise.notebook)[exercise.name] == [[], True]


@pytest.mark.parametrize(
    ("exercise", "path"), [pytest.param(one, path, id=path.stem) for one in WITH_CHEATS for path in cheats(one)]
)
def test_a_cheat_gets_no_points_and_is_named(exercise, path):
    expected = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# expects: ")
    errors, passed = graded(exercise.notebook)[str(path)]
    assert not passed
    assert any(re.search(re.escape(expected), error, re.IGNORECASE) for error in errors), errors


def test_every_cheat_belongs_to_an_exercise():
    assert set(CHEATS.rglob("*py")) == {path for one in EXERCISES for path in cheats(one)}


def test_what_is_refused_in_grading_is_refused_at_home_in_the_same_words():
    busy, by_hand = (
        next(one for one in EXERCISES if one.name == name and one.notebook[:2] == "03")
        for name in ("busy", "idle_by_hand")
    )
    unused, above = "import os\nfolder = os.getcwd()", "import json\ndef helper(x): return json.loads(json.dumps(x))"
    exercises = [
        [unused, busy.solution, busy.check],
        [by_hand.solution, by_hand.check],
        [above, f"lists = helper([])\n{busy.solution}", busy.check],
        [f"import os\n{by_hand.solution}", by_hand.check],
    ]
    home, marked = run(busy.setup, exercises), run(busy.setup, exercises, LABKIT_CHECK_SEED="1")
    assert [passed for _, passed in home] == [passed for _, passed in marked] == [True, True, False, False]
    for (at_home, _), (in_grading, _) in zip(home[2:], marked[2:], strict=True):
        reason = at_home[0].removeprefix("WrongAnswer: ")
        assert "has no business in an answer" in reason and any(reason in error for error in in_grading)


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
        "from labkit.course.one_process import FAULT_OF as faults",
        "faults = dict(course.FAULT_OF)",
        "import os",
        "from labkit.course import check as judge",
        "from labkit import course\ncourse.check.hidden = print",
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
    ],
)
def test_a_look_at_the_source_names_it(answer):
    assert "has no business" in tampering(answer)
