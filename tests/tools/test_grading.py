"""`make grade`: one class of hand-ins, graded once."""

import csv
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.converters import GenerateAssignment

from tools.grading import __main__ as grading
from tools.grading.course import Course
from tools.grading.execute import name_of

NAME = "01_tiny"
SECRET = "the solution of the course"
EXERCISES = {
    "one": "def one():\n    return 1",
    "two": "def two():\n    return 2",
    "three": "def three():\n    return three_of_setup",
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of namespaces is Linux's")


def marks(name: str, **more: object) -> dict:
    """nbgrader's marks on a cell."""
    flags = dict.fromkeys(("grade", "solution", "task"), False)
    return {"nbgrader": flags | {"grade_id": name, "locked": False, "schema_version": 3} | more}


def tiny_notebook() -> nbformat.NotebookNode:
    """A notebook with exercises in one line each, whose checks say why an answer is wrong, and a written answer."""
    cells = [
        new_code_cell("import os\nthree_of_setup = 3", metadata=marks("setup", locked=True)),
        new_code_cell("raise RuntimeError('not graded')"),
    ]
    for number, (name, solution) in enumerate(EXERCISES.items(), start=1):
        head, body = solution.split("\n", 1)
        source = f"{head}\n    ### BEGIN SOLUTION\n{body}  # {SECRET}\n    ### END SOLUTION"
        check = (
            "import os\nfrom labcourse.check.answers import WrongAnswer\n"
            f"if {name}() == -{number}:\n    raise WrongAnswer('{name}: the sign is wrong')\n"
            f"if {name}() != {number}:\n    raise WrongAnswer(f'{name}: {{{name}()!r}} is not {number}')\n"
            "### BEGIN HIDDEN TESTS\nassert os.environ['LABKIT_CHECK_SEED'] == '5'\n### END HIDDEN TESTS\n"
            f"print('✓ {name}: right')"
        )
        cells += [
            new_markdown_cell(f"Exercise {name}"),
            new_code_cell(source, metadata=marks(name, solution=True)),
            new_code_cell(check, metadata=marks(f"{name}_check", grade=True, locked=True, points=2)),
        ]
    cells.append(new_markdown_cell(SECRET, metadata=marks("written", grade=True, solution=True, points=4)))
    kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    return new_notebook(cells=cells, metadata=kernel)


@pytest.fixture(scope="module")
def path_to_alembic():
    """nbgrader calls alembic, which lies beside Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        yield


@pytest.fixture(scope="module")
def released(tmp_path_factory, path_to_alembic):
    """The folder of a course with the students' notebook, as `make assignments` makes it."""
    course = Course(tmp_path_factory.mktemp("released"))
    source = course.root / "source" / NAME / f"{NAME}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(tiny_notebook(), source)
    course.directory.assignment_id = NAME
    GenerateAssignment(coursedir=course.directory, config=course.config).start()
    return course.root


@pytest.fixture(scope="module")
def course(released, tmp_path_factory):
    """The course, released."""
    return Course(shutil.copytree(released, tmp_path_factory.mktemp("class") / "course"))


def answered(course: Course, answers: dict[str, str]) -> nbformat.NotebookNode:
    """The students' notebook with answers filled in."""
    notebook = nbformat.read(course.root / "release" / NAME / f"{NAME}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = answers.get(name_of(cell), cell.source)
    notebook.cells[0].source += "\n" + answers.get("added to setup", "")
    return notebook


def hand_in(folder: Path, student: str, notebook: nbformat.NotebookNode) -> None:
    """Put a student's notebook into a folder with nbgrader's layout."""
    path = folder / student / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


WRONG = {
    "right": {},
    "sign": {"two": "def two():\n    return -2"},
    "raises": {"two": "def two():\n    return helper"},
    "exits": {"two": "import os\n\ndef two():\n    os._exit(0)"},
}


@pytest.fixture(scope="module")
def graded(course):
    """The course after `make grade`."""
    course.config.Execute.timeout = 5
    for student, changes in WRONG.items():
        hand_in(course.root / "submitted", student, answered(course, EXERCISES | changes))
    hand_in(course.root / "submitted", "untouched", answered(course, {}))
    copied = answered(course, EXERCISES | {"two": "first_part = 2"})
    place = [name_of(cell) for cell in copied.cells].index("two")
    copied.cells.insert(
        place + 1, new_code_cell("def two():\n    return first_part", metadata=marks("two", solution=True))
    )
    hand_in(course.root / "submitted", "copied", copied)
    deleted = answered(course, EXERCISES)
    deleted.cells = [cell for cell in deleted.cells if name_of(cell) != "two_check"]
    hand_in(course.root / "submitted", "deleted", deleted)
    grading.main(["--course", str(course.root), "--seed", "5"])
    return {one.student: one.exercises for one in course.graded(NAME)}


@pytest.mark.slow
def test_marks_and_messages(graded):
    points = {student: [ones[name].points for name in EXERCISES] for student, ones in graded.items()}
    assert points["right"] == points["copied"] == points["deleted"] == [2, 2, 2] and points["untouched"] == [0, 0, 0]
    assert points["sign"] == points["raises"] == [2, 0, 2]
    assert graded["sign"]["two"].message == "WrongAnswer: two: the sign is wrong"
    assert "exits" not in points, "its kernel died: a teacher looks at it"


@pytest.mark.slow
def test_the_pages(graded, course):
    with open(course.root / "grades.csv", encoding="utf-8", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert {*rows} == {*graded, "exits"} and rows["exits"][f"{NAME} notes"] == "not graded"
    assert True and rows["right"][f"{NAME} two (of 2)"] == "2"
    assert "the sign is wrong" in (course.root / f"{NAME}.html").read_text()
    page = (course.root / "feedback" / "sign" / NAME / f"{NAME}.html").read_text()
    assert "two: the sign is wrong" in page and SECRET not in page and "LABKIT_CHECK_SEED" not in page
