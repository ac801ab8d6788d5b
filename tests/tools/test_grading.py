"""`make grade`: one class of hand-ins, graded once."""

import csv
import io
import shutil
from contextlib import redirect_stdout
from pathlib import PurePosixPath

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook

from tools import assignments
from tools.grading import __main__ as grading
from tools.grading import collect, execute, report
from tools.grading.course import Course
from tools.grading.execute import name_of
from tools.grading.people import read_people

NAME = "01_tiny"
SECRET = "the solution of the course"
VALUES = {"one": "1", "two": "2", "three": "three_of_setup"}
EXERCISES = {name: f"def {name}():\n    return {value}" for name, value in VALUES.items()}


def marks(name: str, **more: object) -> dict:
    """nbgrader's marks on a cell."""
    flags = dict.fromkeys(("grade", "solution", "task"), False)
    return {"nbgrader": flags | {"grade_id": name, "locked": False, "schema_version": 3} | more}


def tiny_notebook() -> nbformat.NotebookNode:
    """A notebook with exercises in one line each, whose checks say why an answer is wrong, and a written answer."""
    setup = new_code_cell("import os\nthree_of_setup = 3", metadata=marks("setup", locked=True))
    cells = [setup, new_code_cell("raise RuntimeError('not graded')")]
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
def released(tmp_path_factory):
    """The folder of a course with the students' notebook, as `make assignments` makes it."""
    root = tmp_path_factory.mktemp("released")
    nbformat.write(tiny_notebook(), root / f"{NAME}.ipynb")
    assignments.make([root / f"{NAME}.ipynb"], root)
    text = (root / "release" / NAME / f"{NAME}.ipynb").read_text()
    assert SECRET not in text and "LABKIT_CHECK_SEED" not in text
    return root


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


RIGHT = EXERCISES | {"written": "an answer <script>alert(1)</script> in words"}
WRONG = {
    "sign": {"two": "def two():\n    return -2"},
    "raises": {"two": "def two():\n    return helper"},
    "loops": {"two": "def two():\n    while True:\n        pass"},
    "exits": {"two": "import os\n\ndef two():\n    os._exit(0)"},
    "setup": {"added to setup": "of_my_own = 2", "two": "def two():\n    return of_my_own"},
}


def canvas_name(student: str, end: str = "ipynb") -> str:
    """What Canvas calls a student's file."""
    number = 100 + len(student)
    return f"{student}_{'LATE_' if student == 'late' else ''}{number}_7{number}_{NAME}-1.{end}"


@pytest.fixture(scope="module")
def graded(course, tmp_path_factory):
    """A class's files as Canvas exports them, graded; what was printed."""
    folder = tmp_path_factory.mktemp("export")
    notebooks = {student: answered(course, EXERCISES | changes) for student, changes in WRONG.items()}
    notebooks |= {"right": answered(course, RIGHT), "late": answered(course, EXERCISES)}
    notebooks |= {"untouched": answered(course, {}), "copied": answered(course, EXERCISES | {"two": "part = 2"})}
    place = [name_of(cell) for cell in notebooks["copied"].cells].index("two")
    again = new_code_cell("def two():\n    return part", metadata=marks("two", solution=True))
    notebooks["copied"].cells.insert(place + 1, again)
    for student, change in {"deleted": None, "changed": "assert True"}.items():
        notebooks[student] = answered(course, EXERCISES | {"two": "def two():\n    return -2"})
        check = next(cell for cell in notebooks[student].cells if name_of(cell) == "two_check")
        if change:
            check.source = change
        else:
            notebooks[student].cells.remove(check)
    for student, notebook in notebooks.items():
        nbformat.write(notebook, folder / canvas_name(student))
    (folder / canvas_name("broken")).write_text("{")
    (folder / canvas_name("pdf", "pdf")).write_bytes(b"%PDF-1.7")
    (folder / "notes.txt").write_text("of nobody")
    archive = shutil.make_archive(str(folder), "zip", folder.parent, folder.name)  # a folder around all
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("ISOLATION", "none")
        patch.setitem(execute.LONG, NAME, 5)
        people = ["id,first_name,last_name", *(f"{student}-id,{student}," for student in [*notebooks, "absent"])]
        (folder / "people.csv").write_text("\n".join(people))
        words = ["--seed", "5", "--students", str(folder / "people.csv"), "--submissions", archive]
        grading.main(course, [*words, "--notebook", NAME])
    return printed.getvalue()


def rows(course: Course) -> dict[str, dict[str, str]]:
    """The rows of grades.csv, by student."""
    with open(course.root / "grades.csv", encoding="utf-8", newline="") as file:
        return {row["student"].removesuffix("-id"): row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_marks_and_messages(graded, course):
    table = rows(course)
    points = {who: [row[f"{NAME} {name} (of 2)"] for name in EXERCISES] for who, row in table.items()}
    full = ["right", "late", "copied", "setup"]
    assert {who: points[who] for who in full} == dict.fromkeys(full, ["2"] * 3) and points["untouched"] == ["0"] * 3
    wrong = ["sign", "raises", "loops", "deleted", "changed"]
    assert {who: points[who] for who in wrong} == dict.fromkeys(wrong, ["2", "0", "2"])
    messages = {one.removesuffix("-id"): answers["two"].message for one, answers in course.graded(NAME).items()}
    assert messages["sign"] == messages["deleted"] == messages["changed"] == "WrongAnswer: two: the sign is wrong"
    assert "NameError" in messages["raises"] and "does a loop never end?" in messages["loops"]
    assert messages["untouched"] == "not answered"


@pytest.mark.slow
def test_what_cannot_be_graded_comes_back_with_the_reason(graded, course):
    table = rows(course)
    for student, reason in {"exits": "kernel", "broken": "no notebook that can be read", "pdf": f"{NAME}.pdf"}.items():
        notes, points = table[student][f"{NAME} notes"], table[student][f"{NAME} (of 10)"]
        folder = student if student in ("broken", "pdf") else f"{student}-id"
        page = (course.root / "feedback" / folder / NAME / f"{NAME}.html").read_text()
        assert "not graded" in notes and reason in notes and not points and reason in page
    assert "notes.txt" in graded and "notes.txt" in (course.root / f"{NAME}.html").read_text()


@pytest.mark.slow
def test_the_table_and_the_pages(graded, course):
    table = rows(course)
    assert "late" in table["late"][f"{NAME} notes"] and "not in the class list" in table["pdf"][f"{NAME} notes"]
    assert table["absent"][f"{NAME} notes"] == "" and table["absent"]["first_name"] == "absent"
    assert table["right"][f"{NAME} (of 10)"] == "", "an answer waits to be read"
    page = (course.root / "feedback" / "sign-id" / NAME / f"{NAME}.html").read_text()
    assert "two: the sign is wrong" in page and SECRET not in page and "LABKIT_CHECK_SEED" not in page
    written = (course.root / "feedback" / "right-id" / NAME / f"{NAME}.html").read_text()
    assert "in words" in written and "<script>alert" not in written, "it would run in a teacher's browser"
    report = (course.root / f"{NAME}.html").read_text()
    assert "the sign is wrong" in report and "SEED=5" in report


@pytest.mark.slow
def test_only_what_is_new_is_graded(graded, course, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ISOLATION", "none")
    nbformat.write(answered(course, EXERCISES), tmp_path / canvas_name("sign"))
    nbformat.write(answered(course, RIGHT), tmp_path / canvas_name("right"))
    with Gradebook(course.directory.db_url) as gradebook:
        gradebook.find_grade("written", NAME, NAME, "right-id").manual_score = 3
        gradebook.db.commit()
    grading.main(course, ["--submissions", str(tmp_path), "--notebook", NAME])
    printed = capsys.readouterr().out
    assert f"{NAME} sign-id: graded" in printed and "right-id: graded" not in printed
    assert rows(course)["sign"][f"{NAME} two (of 2)"] == "2" and rows(course)["right"][f"{NAME} (of 10)"] == "9"


PATHS = [
    ("smithjohn_LATE_12345_678901_01_tiny-1.ipynb", "js1"),
    ("someone_77_678902_01_tiny (1).ipynb", "lee"),
    ("anon_aB3dE_678_01_tiny.ipynb", "anon_aB3dE"),
    ("Änn Lee_123457_assignsubmission_file_/01_tiny.ipynb", "lee"),
    ("Week 2_js1_attempt_2027-03-01-22-12-05_01_tiny.ipynb", "js1"),
    ("12-3 - John Smith - Mar 1, 2027 1012 PM/01_tiny.ipynb", "js1"),
    ("John Smith - Copy of 01_tiny.ipynb", "js1"),
    ("John Smith/Week 2/Version 1/a.ipynb", "js1"),
    ("js1/someone_77_678902_01_tiny.ipynb", "js1"),  # what a student uploads names nobody else
    ("carl/01_tiny/01_tiny.ipynb", "carl"),
    ("01_tiny.ipynb", ""),
]


@pytest.mark.parametrize(("path", "student"), PATHS)
def test_a_path_names_its_student(course, path, student):
    (course.root / "class_list.csv").write_text("id;first_name;last_name;number\njs1;John;Smith;\nlee;Änn;Lee;77\n")
    assert collect.student_of(PurePosixPath(path), collect.ids_by_name(course))[0] == student


CANVAS = """Student,ID,SIS Login ID,Section,Week 1: 01_tiny (4711),Essay (12)
    Points Possible,,,,10,5
"Right, Ada",1001,right,A,,4
"Young, Eve",1002,,A,,
"""
MOODLE = """Identifier,"Full name","Email address",Status
"Participant 1234","Ann Lee",ann@example.org,Submitted
"""
PLATFORMS = [(CANVAS, ["right", "1002"], ["1001", "1002"]), (MOODLE, ["ann@example.org"], ["1234"])]


@pytest.mark.parametrize(("text", "ids", "numbers"), PLATFORMS)
def test_a_class_list_comes_from_a_platform(tmp_path, text, ids, numbers):
    (tmp_path / "list.csv").write_text(text, encoding="utf-8-sig")
    people = read_people(tmp_path / "list.csv")
    assert [*people.index] == ids and [*people["number"]] == numbers


def test_another_table_is_no_class_list(tmp_path):
    (tmp_path / "list.csv").write_text("name,mark\nada,1\n")
    with pytest.raises(ValueError, match="has not the columns id"):
        read_people(tmp_path / "list.csv")


def test_canvas_gets_its_own_table_back(course, tmp_path):
    (tmp_path / "list.csv").write_text(CANVAS)
    table = pd.DataFrame({f"{NAME} (of 10)": [7.5]}, index=["right"])
    report.write_for_canvas(course, table, read_people(tmp_path / "list.csv"))
    rows = (course.root / "canvas.csv").read_text().splitlines()
    assert rows[0] == "Student,ID,SIS Login ID,Section,Week 1: 01_tiny (4711)" and rows[1].endswith(",10")
    assert rows[2] == '"Right, Ada",1001,right,A,7.5' and len(rows) == 3, "who handed nothing in keeps an old mark"


def test_a_hand_in_that_waits_has_a_row_and_an_unknown_student_is_named(released, tmp_path, monkeypatch, capsys):
    course = Course(shutil.copytree(released, tmp_path / "course"))
    (course.root / "class_list.csv").write_text("id\nada\n")
    (course.root / "submitted" / "ada" / NAME).mkdir(parents=True)
    assert report.marks(course, NAME)[f"{NAME} notes"]["ada"] == "not graded: not yet"
    monkeypatch.setenv("ISOLATION", "none")
    with pytest.raises(SystemExit):
        grading.main(course, ["--student", "eve"])
    assert "eve has handed in none" in capsys.readouterr().err


def test_a_mistake_is_named_only_by_what_no_other_answer_gives():
    known = {"your answer is": "the formula", "these keys are missing": "turned around", "that is the sum": "the sum"}
    said = "WrongAnswer: {} (Case: your answer is 3; share 0.5)"
    assert report.mistake(said.format("That is the sum."), known) == "the sum"
    assert report.mistake(said.format("Measure it."), known) == report.OTHER
    assert report.mistake("WrongAnswer: these keys are missing: 'a'.", known) == "other keys than asked for"


def test_without_a_container_students_code_is_not_run(course, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ISOLATION", raising=False)
    with pytest.raises(SystemExit):
        grading.main(course, [])
    assert "ISOLATION=none" in capsys.readouterr().err
