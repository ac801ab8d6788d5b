"""No cheat gets points, since the answer's process knows neither what is right nor what its check does.

A cheat is a file like a wrong answer, after which it is also named:

    tests/labcourse/cheats/01/cycle_loss/the_check_replaced.py

The first line is `# expects: ` and a fragment of the error that its answer or its check shows when it is graded.
"""

import os
import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell
from test_assignments import EXERCISES, OF_DRAWN_DATA, ROOT, Exercise
from test_assignments import run as run_at_home

from tools.grading.execute import RunExercises, is_wrong

CHEATS = ROOT / "tests" / "labcourse" / "cheats"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="grading forks a process for each exercise"),
]


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
    if "the library's own" in expected and path.stem != "source_of_labkit":
        with pytest.raises(AssertionError, match=re.escape(expected)):
            run_at_home(exercise, answer)


def test_every_cheat_belongs_to_an_exercise():
    assert set(CHEATS.rglob("*py")) == {path for one in EXERCISES for path in cheats(one)}


@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one.notebook[:2] in ("01", "10")], ids=str)
def test_a_wrong_answer_gets_the_same_words_at_home_and_where_it_is_graded(exercise):
    answer = exercise.wrong_answers[-1].made_in(exercise.solution)
    with pytest.raises(AssertionError) as at_home:
        run_at_home(exercise, answer)
    errors, passed = run(exercise, answer)
    home, graded = (told.partition("LABKIT_CHECK_SEED")[0] for told in (str(at_home.value), errors[-1]))
    assert home == graded and not passed
