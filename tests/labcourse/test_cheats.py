"""No cheat gets points, since the answer's process knows neither what is right nor what its check does.

Cheats stand in tests/labcourse/cheats, in the tables of wrong answers that tools/mistakes.py describes. What a cheat
expects is a fragment of the error that its answer or its check shows when it is graded.
"""

import os
import re

import pytest
from nbformat.v4 import new_code_cell
from test_assignments import EXERCISES, OF_DRAWN_DATA, ROOT, Exercise
from test_assignments import run as run_at_home

from tools.grading.execute import RunExercises, is_wrong
from tools.mistakes import Mistake, known

CHEATS = ROOT / "tests" / "labcourse" / "cheats"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="grading forks a process for each exercise"),
]


def cheats(exercise: Exercise) -> list[Mistake]:
    return known(exercise.notebook, CHEATS).get(exercise.name, [])


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


@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one.name not in OF_DRAWN_DATA], ids=str)
def test_the_solution_passes_while_cheats_are_looked_for(exercise):
    assert run(exercise, exercise.solution) == ([], True)


@pytest.mark.parametrize(
    ("exercise", "cheat"), [pytest.param(one, cheat, id=cheat.name) for one in EXERCISES for cheat in cheats(one)]
)
def test_a_cheat_gets_no_points_and_is_named(exercise, cheat):
    errors, passed = run(exercise, cheat.answer)
    assert not passed
    assert any(re.search(re.escape(cheat.expects), error, re.IGNORECASE) for error in errors), errors
    if "the library's own" in cheat.expects and cheat.name != "source_of_labkit":
        with pytest.raises(AssertionError, match=re.escape(cheat.expects)):
            run_at_home(exercise, cheat.answer)


def test_every_cheat_belongs_to_an_exercise():
    names = {(one.notebook.partition("_")[0], one.name) for one in EXERCISES}
    assert {(path.stem, exercise) for path in CHEATS.iterdir() for exercise in known(path.stem, CHEATS)} <= names


@pytest.mark.parametrize("exercise", [one for one in EXERCISES if one.notebook.startswith(("01_", "10_"))], ids=str)
def test_a_wrong_answer_gets_the_same_words_at_home_and_where_it_is_graded(exercise):
    answer = exercise.wrong_answers[-1].made_in(exercise.solution)
    with pytest.raises(AssertionError) as at_home:
        run_at_home(exercise, answer)
    errors, passed = run(exercise, answer)
    home, graded = (told.partition("LABKIT_CHECK_SEED")[0] for told in (str(at_home.value), errors[-1]))
    assert home == graded and not passed
