"""`make grade`: what a learning management system exports is found, and hostile answers cost nobody else points.

The course is one tiny notebook. Answers to it are in students.toml beside this file, exported files in exports.toml.
"""

import contextlib
import copy
import csv
import io
import json
import os
import re
import runpy
import shutil
import sys
import tomllib
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader.converters import GenerateAssignment
from nbgrader.server_extensions.formgrader.handlers import template_path
from traitlets.config import Config

from tools import assignments
from tools.grading import __main__ as grading
from tools.grading import by_hand, report, sandbox
from tools.grading.collect import collect, read_roster, read_table
from tools.grading.course import Course
from tools.grading.execute import RestoreCells, RunExercises, is_wrong, name_of, take_from_beside

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


@pytest.fixture(scope="module", autouse=True)
def one_sandbox():
    """All of the class is graded in one sandbox, with limits that hostile answers soon meet."""
    with pytest.MonkeyPatch.context() as patch:
        load = Course.__init__

        def with_limits(self, root):
            load(self, root)
            self.config.RunExercises.update(exercise_seconds=1, memory_mb=1000)

        patch.setattr(Course, "__init__", with_limits)
        patch.setattr(grading, "RunExercises", SimpleNamespace(end=lambda: None))
        yield
    RunExercises.end()


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


STUDENTS = tomllib.loads(Path(__file__).with_name("students.toml").read_text(encoding="utf-8"))
HOSTILE, HONEST = STUDENTS["hostile"], STUDENTS["honest"]
# Those who are graded the whole way. Of the others only the answers are run, without nbgrader's database and its pages.
CLASS = "sign value exits forges kills lacks right asserted copied elsewhere older split timed".split()


def is_check(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is the check of an exercise."""
    return cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade", False)


def written(course: Course, changes: dict) -> nbformat.NotebookNode:
    """A student's notebook, in which the answers to the other two exercises are right."""
    notebook = answered(course, {name: EXERCISES[name] for name in ("one", "three")} | changes)
    for place in sorted((int(key) for key in changes if key.isdigit()), reverse=True):
        for cell in reversed(changes[str(place)]):
            source, metadata = (cell["copied"], marks("two", solution=True)) if isinstance(cell, dict) else (cell, {})
            notebook.cells.insert(place, new_code_cell(source, metadata=metadata))
    return notebook


def ran(course: Course, changes: dict) -> nbformat.NotebookNode:
    """Such a notebook, after the course's own preprocessors."""
    config = course.config.copy()
    config.RunExercises.update(seed=5, isolation="namespaces")
    notebook, resources = written(course, changes), {"nbgrader": {"assignment": NAME, "notebook": NAME}}
    for preprocessor in (RestoreCells, RunExercises):
        notebook, resources = preprocessor(config=config).preprocess(notebook, resources)
    return notebook


@pytest.fixture(scope="module")
def graded(course, tmp_path_factory):
    """The course after `make grade`, with the lines that it printed."""
    folder = tmp_path_factory.mktemp("handed_in")
    for student in CLASS:
        hand_in(folder, student, written(course, (HOSTILE | HONEST)[student]))
    hand_in(folder, "broken", written(course, STUDENTS["broken"]))
    hand_in(folder, "untouched", answered(course, {}))
    deleted = answered(course, EXERCISES)
    deleted.cells[-1] = new_markdown_cell("Because of one kernel.")  # in place of the written answer
    del deleted.cells[3:8]  # of exercise one and two all but the text
    hand_in(folder, "deleted", deleted)
    noted = answered(course, EXERCISES)
    changes = {"schema_version": 2}, {"schema_version": 99, "checksum": "0"}, {"points": None}
    for check, changed in zip(filter(is_check, noted.cells), changes, strict=True):
        check.metadata["nbgrader"].update(changed)  # as nobody should
    hand_in(folder, "noted", noted)
    (folder / "damaged.ipynb").write_text("no notebook")
    (folder / "right" / NAME / "labkit").mkdir()
    (folder / "right" / NAME / "labkit" / "__init__.py").write_text("raise RuntimeError('of a student')")
    roster = folder / "students.csv"
    roster.write_text("id,first_name,last_name\nright,Ada,Right\nabsent,Bob,Absent\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        words = ["--submissions", folder, "--course", course.root, "--students", roster, *GRADE]
        assert grading.main([str(word) for word in words]) == 0, printed.getvalue()
    return {one.student: one.exercises for one in course.graded(NAME)}, printed.getvalue()


@pytest.fixture(scope="module")
def namespaces():
    """Skips a test where this kind of sandbox does not work."""
    if reason := sandbox.works("namespaces"):
        pytest.skip(reason)


def in_sandbox(test):
    """Marks a test that takes seconds, and that is skipped where this kind of sandbox does not work."""
    return pytest.mark.slow(pytest.mark.usefixtures("namespaces")(test))


@in_sandbox
@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_costs_its_own_points_only(graded, course, name):
    if name in CLASS:
        exercises, told = graded[0][name], graded[1]
        assert [exercises[exercise].points for exercise in EXERCISES] == [2, 0, 2], told
        shown = [exercises["two"].message]
    else:
        notebook = ran(course, HOSTILE[name])
        assert [is_wrong(cell) for cell in notebook.cells if is_check(cell)] == [False, True, False]
        shown = ["".join(output.get("traceback", [])) for cell in notebook.cells for output in cell.get("outputs", [])]
    if stopped := HOSTILE[name].get("stopped"):
        assert any(text.startswith(f"Stopped: {stopped}") for text in shown)


@in_sandbox
@pytest.mark.parametrize("name", HONEST)
def test_what_is_right_from_top_to_bottom_counts(graded, course, name):
    if name in CLASS:
        assert [graded[0][name][exercise].message for exercise in EXERCISES] == ["right"] * 3
        assert [graded[0][name][exercise].points for exercise in EXERCISES] == [2, 2, 2], graded[1]
        return
    notebook = ran(course, HONEST[name])
    shown = [cell.outputs for cell in notebook.cells if is_check(cell)]
    assert not [output for cell in notebook.cells for output in cell.get("outputs", []) if "ename" in output]
    assert shown == [[new_output("stream", name="stdout", text=f"✓ {exercise}: right\n")] for exercise in EXERCISES]


@in_sandbox
def test_cells_that_were_copied_or_split_are_named(graded, course):
    noted = {one.student: one.notes for one in course.graded(NAME)}
    assert noted["copied"] == noted["split"] == ["copied or split, graded as one cell: two"] and noted["timed"] == []


@in_sandbox
def test_checks_and_marks_are_the_course_s_and_what_is_missing_is_named_where_the_answer_is_wrong(graded):
    assert [graded[0]["deleted"][name].points for name in (*EXERCISES, "written")] == [0, 0, 2, None]
    assert [graded[0]["untouched"][name].points for name in EXERCISES] == [0, 0, 0]
    assert [graded[0]["noted"][name].points for name in EXERCISES] == [2, 2, 2]
    assert "name 'helper' is not defined, in two, line 2" in graded[0]["broken"]["two"].message
    message = graded[0]["lacks"]["two"].message
    assert message.startswith("WrongAnswer") and message.endswith("(Not installed where answers are graded: not_here.)")


@in_sandbox
def test_what_cannot_be_graded_is_named(graded):
    assert "damaged.ipynb: not a notebook that can be read" in graded[1]
    assert "labkit/__init__.py: not a notebook" in graded[1]
    assert "sandbox: namespaces" in graded[1] and "SEED=5" in graded[1]
    assert "has not all of its feedback" not in graded[1]


@in_sandbox
def test_the_table_has_a_row_for_everybody_and_a_column_for_what_was_handed_out(graded, course):
    with open(course.root / "grades.csv", encoding="utf-8", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert set(rows) == {*CLASS, "broken", "untouched", "deleted", "noted", "absent"}
    points = [f"{NAME} {name} (of 2)" for name in EXERCISES]
    points += [f"{NAME} written (of 4)", f"{NAME} (of 10)", f"{NAME} notes"]
    assert [*rows["right"]] == ["student", "last_name", "first_name", *points]
    assert [*rows["right"].values()] == ["right", "Right", "Ada", "2", "2", "2", "0", "6", ""]
    assert set(rows["absent"].values()) == {"absent", "Absent", "Bob", ""}, "nothing handed in is not 0 points"
    assert rows["exits"][f"{NAME} notes"] == "crashed: two; not in the class list"


@in_sandbox
def test_the_report_counts_misconceptions(graded, course, tmp_path):
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "01.toml").write_text("[two.minus]\nexpects = 'The SIGN is wrong'\nanswer = 'two = int'\n")
    report.write_class(course, NAME, tmp_path / "report.html", wrong_answers=tmp_path / "wrong")
    page = BeautifulSoup((tmp_path / "report.html").read_text(), "html.parser")
    rows = [[cell.text for cell in row.find_all(["th", "td"])] for row in page.find_all("tr")]
    assert ["minus", "1", "WrongAnswer: two: the sign is wrong"] in rows
    assert ["another mistake", "1", "WrongAnswer: two: 7 is not 2"] in rows
    assert {"NameError", "Stopped: crashed", "not answered"} <= {row[0] for row in rows if row}
    assert any(row[0] == "damaged.ipynb" and "can be read (NotJSONError)" in row[1] for row in rows if row)
    assert report.mistake("WrongAnswer: a number is expected, not None.", {}) == "a value of another kind"
    assert SECRET not in page.text


@in_sandbox
def test_feedback_begins_with_the_result_and_has_no_hidden_tests(graded, course):
    (file,) = (course.root / "feedback" / "sign" / NAME).iterdir()
    page = file.read_text()
    rows = [row.get_text(" ", strip=True) for row in BeautifulSoup(page, "html.parser").table.find_all("tr")]
    assert rows[1:] == [
        "one 2 of 2 right",
        "two 0 of 2 two: the sign is wrong",
        "three 2 of 2 right",
        "written 0 of 4 not answered",
    ]
    assert SECRET not in page and "LABKIT_CHECK_SEED" not in page


# Marks by hand, and what is seen of a submission

ATTACKS = STUDENTS["pages"]["attacks"]
SHOWS = f"ATTACKS = {ATTACKS!r}\n{STUDENTS['pages']['shows']}"


@pytest.fixture(scope="module")
def marked(released, tmp_path_factory):
    """A course with two submissions, one of them hostile, that are graded."""
    course = Course(shutil.copytree(released, tmp_path_factory.mktemp("marked") / "course"))
    answers = {"two": "def two():\n    return 7", "written": "Mine."}
    hand_in(course.root / "submitted", "ada", answered(course, EXERCISES | answers))
    hostile = answered(course, EXERCISES | {"two": SHOWS, "written": f"**Bold** {ATTACKS}"})
    hostile.metadata["title"] = ATTACKS
    extra = marks(f'x"{ATTACKS}', solution=True) | {"tags": [ATTACKS.replace(",", "")]}
    hostile.cells += [
        new_markdown_cell(ATTACKS, metadata=extra),
        new_raw_cell(ATTACKS, metadata={"raw_mimetype": "text/html"}),
    ]
    hand_in(course.root / "submitted", "eve", hostile)
    row_of(course, *GRADE)
    return course


@pytest.fixture
def own(marked, tmp_path):
    """A copy of it."""
    return Course(shutil.copytree(marked.root, tmp_path / "course"))


def row_of(course: Course, *words: str) -> dict[str, str]:
    """Ada's row of grades.csv after a run, by exercise."""
    assert grading.main(["--course", str(course.root), *words]) == 0
    with open(course.root / "grades.csv", encoding="utf-8", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["student"] == "ada")
    return {name.removeprefix(NAME).partition("(")[0].strip(): mark for name, mark in row.items()}


GRADE = ("--isolation", "namespaces", "--seed", "5")


@in_sandbox
def test_marks_by_hand_stay(own, monkeypatch):
    waiting = row_of(own)
    assert (waiting["written"], waiting["notes"]) == ("", "to be read: written")
    assert waiting["two"] == "0" and waiting[""] == "", "the sum waits, too"
    assert "<td>to be read" in (own.root / f"{NAME}.html").read_text()
    with own.gradebook() as gradebook:  # as formgrader writes them
        for name, given in {"written": (3, None), "two_check": (1, None), "one_check": (None, 0.5)}.items():
            grade = gradebook.find_grade(name, NAME, NAME, "ada")
            grade.manual_score, grade.extra_credit = given
            grade.needs_manual_grade = False
        gradebook.find_comment("written", NAME, NAME, "ada").manual_comment = "Well argued"
        gradebook.db.commit()
    by_hand = {"one": "2.5", "two": "1", "three": "2", "written": "3", "": "8.5"}

    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "choose", lambda kind: pytest.fail("marks are written without a sandbox"))
        patch.setattr(grading, "Autograde", None)
        assert row_of(own).items() >= by_hand.items()
    assert "Well argued" in (own.root / "feedback" / "ada" / NAME / f"{NAME}.html").read_text()
    page = (own.root / f"{NAME}.html").read_text()
    assert "<td>3 points by hand" in page and "SEED=5" in page

    again = row_of(own, "--student", "ada", *GRADE)
    assert again.items() >= by_hand.items()
    assert again["notes"] == "by hand: one; by hand: two; by hand: written"

    submitted = own.root / "submitted" / "ada" / NAME / f"{NAME}.ipynb"
    notebook = nbformat.read(submitted, as_version=4)
    notebook.cells[-1].source = "Mine, better."
    nbformat.write(notebook, submitted)
    better = row_of(own, *GRADE)
    assert (better["one"], better["two"], better["written"]) == ("2.5", "1", ""), "of the new text alone it is gone"
    assert "to be read: written; 3 points by hand were for an earlier text: written" in better["notes"]
    assert "Well argued" not in (own.root / "feedback" / "ada" / NAME / f"{NAME}.html").read_text()


def rewrite(course: Course, student: str, question: str, answer: str, *outputs: nbformat.NotebookNode) -> None:
    """Hand in another answer to a question, with outputs of the cell before it."""
    path = course.root / "submitted" / student / NAME / f"{NAME}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    place = [*map(name_of, notebook.cells)].index(question)
    notebook.cells[place].source = answer
    notebook.cells.insert(place, new_code_cell("table", outputs=[*outputs]))
    nbformat.write(notebook, path)


@in_sandbox
def test_only_what_has_changed_is_graded_with_the_seed_of_the_class(own, capsys):
    rewrite(own, "ada", "two", "def two():\n    return 2")
    assert row_of(own, "--isolation", "namespaces")["two"] == "2"
    told = capsys.readouterr().out
    assert f"{NAME} ada: graded" in told and f"{NAME} eve" not in told and "SEED=5" in told
    row_of(own, "--isolation", "namespaces", "--student", "eve")
    told = capsys.readouterr().out
    assert f"{NAME} eve: graded" in told and f"{NAME} ada" not in told and "SEED=5" in told
    with pytest.raises(SystemExit):
        row_of(own, "--student", "bob")
    assert "bob has handed in none" in capsys.readouterr().err


@in_sandbox
def test_written_answers_are_read_on_one_page_and_marked_in_a_table(own):
    table, page = own.root / "answers" / f"{NAME}-written.csv", own.root / "answers" / f"{NAME}-written.html"
    shown = new_output("execute_result", {"text/html": f"<style>p {{}}</style><table><tr><td>1.08{ATTACKS}</table>"})
    rewrite(own, "ada", "written", "**First** text.", shown, new_output("stream", text="\x1b[31m0.5 ms"))
    row_of(own, *GRADE)
    by_hand.write_page(own, NAME, "written", named=False)
    text = page.read_text()
    assert "<strong>First</strong>" in text and "<td>1.08" in text and "0.5 ms" in text and "ada" not in text
    assert "\x1b" not in text and [found[:7] for found in runs_or_loads(text)] == ["<style>"], "the page's own"

    name = by_hand.anonymous(NAME, "ada")
    table.write_text(re.sub(rf"^{name},,,", f'{name},"2,5",Go on,', table.read_text(), flags=re.MULTILINE))
    marked = row_of(own)
    assert marked["written"] == "2.5" and "by hand: written" in marked["notes"]
    assert "Go on" in (own.root / "feedback" / "ada" / NAME / f"{NAME}.html").read_text()
    rewrite(own, "ada", "written", "Second text.")
    assert row_of(own, *GRADE)["written"] == "" and "Go on" in table.read_text()
    by_hand.write_page(own, NAME, "written", named=True)
    (row,) = (row for row in read_table(table, "answer") if row["student"] == "ada")
    assert (row["points"], row["comment"], row["note"]) == ("", "", "2,5 points were for an earlier text")
    table.write_text(table.read_text().replace(f"{name},ada,", f"{name},ada,5"))
    with pytest.raises(ValueError, match="points '5', and not a number from 0 to 4"):
        by_hand.read_marks(own, NAME)


@in_sandbox
def test_one_bad_file_costs_nobody_else_the_results(own, capsys):
    bad = own.root / "submitted" / "bob" / NAME / f"{NAME}.ipynb"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"\xff\xfe")
    (own.root / "submitted" / "eve" / NAME / f"{NAME}.ipynb").write_text("{}")
    by_hand.write_page(own, NAME, "written", named=True)
    assert grading.main(["--course", str(own.root), "--isolation", "namespaces"]) == 2
    assert "2 submissions could not be graded" in capsys.readouterr().out
    assert re.search("^bob,.*not graded: .*Error", (own.root / "grades.csv").read_text(), re.MULTILINE)


@in_sandbox
def test_the_class_list_is_remembered_but_not_who_was_late(own, tmp_path):
    people = "Identifier,Full name,Status\nParticipant 1,ada,Submitted - 2 days late\nParticipant 2,Bo Li,\n"
    (tmp_path / "students.csv").write_text(people)
    row_of(own, "--students", str(tmp_path / "students.csv"))
    with_list = (own.root / "grades.csv").read_text()
    assert "Bo_Li,,Bo Li" in with_list
    row_of(own)
    assert (own.root / "grades.csv").read_text() == with_list
    assert [row.get("late", "") for row in read_roster(own.root / "class_list.csv")] == ["", ""]


def test_changed_notebooks_are_named(released, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(assignments, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    own = shutil.copy(released / "source" / NAME / f"{NAME}.ipynb", tmp_path / "notebooks")
    assert grading.changed(Course(released)) == []
    nbformat.write(new_notebook(cells=tiny_notebook().cells[1:]), own)
    with pytest.raises(SystemExit):
        grading.main(["--course", str(released), "--notebook", NAME])
    assert f"Changed in notebooks/ since they were handed out: {NAME}. Run make" in capsys.readouterr().out


@pytest.mark.slow
def test_a_notebook_that_the_course_does_not_have_is_named(released, monkeypatch, capsys):
    for program in (grading, by_hand):
        monkeypatch.setattr(sys, "argv", ["", "--course", str(released), "--notebook", "1"])
        with pytest.raises(SystemExit, match="2"):
            runpy.run_path(program.__file__, run_name="__main__")
        assert capsys.readouterr().err == f"1 is no notebook of this course, which has {NAME}\n"
    with pytest.raises(SystemExit):
        grading.main(["--course", str(released), "--notebook", NAME])
    assert f"{NAME} is not among what was handed in" in capsys.readouterr().err


def runs_or_loads(page: str, own: str = "nothing of its own") -> list[str]:
    """What a page would run or load, other than from the places `own`."""
    tags = BeautifulSoup(page, "html.parser").find_all(True)
    allowed = re.compile(rf"data:image/|#|https://example.org$|{own}")
    found = [str(tag) for tag in tags if tag.name in ("script", "iframe", "form", "style", "link", "object", "embed")]
    found += [f"{tag.name}: {key}" for tag in tags for key in tag.attrs if key.startswith("on")]
    links = [str(tag[key]) for tag in tags for key in ("src", "href", "action") if key in tag.attrs]
    return found + [link for link in links if not allowed.match(link)]


@in_sandbox
def test_no_script_of_a_student_is_in_a_page(marked):
    feedback = (marked.root / "feedback" / "eve" / NAME / f"{NAME}.html").read_text()
    assert "<strong>Bold</strong>" in feedback and "&lt;script&gt;" in feedback, "what is left out stands there as text"
    assert "default-src 'none'" in feedback
    for page in (feedback, (marked.root / f"{NAME}.html").read_text()):
        assert [found[:7] for found in runs_or_loads(page)] == ["<style>"], "the page's own"

    config = Config(marked.config)
    config.HTMLExporter.update(template_name="formgrade", extra_template_basedirs=[template_path])  # as formgrader does
    nothing = {"index": 0, "total": 1, "base_url": "/own", "submission_id": "1", "notebook_id": NAME}
    path = marked.root / "autograded" / "eve" / NAME / f"{NAME}.ipynb"
    answers = {}
    for student in ("ada", "eve"):
        page, _ = HTMLExporter(config=config).from_filename(
            str(path).replace("eve", student), resources={**nothing, "student": student}
        )
        answers[student] = runs_or_loads(page, own="/own")
    assert answers["eve"] == answers["ada"]


@in_sandbox
def test_feedback_goes_back_in_the_names_of_the_platform(own):
    (own.root / "submitted" / "ada" / NAME / "back.txt").write_text("Ada Li_12_assignsubmission_file_/01_tiny.html")
    row_of(own)
    with zipfile.ZipFile(own.root / f"{NAME}-feedback.zip") as archive:
        assert archive.namelist() == ["Ada Li_12_assignsubmission_file_/01_tiny.html"]


PROMPT, MINE, TESTED = "YOUR ANSWER HERE", "Because of one kernel.", new_code_cell("1 + 1")
MARKED = marks("q", grade=True, solution=True, points=4)


@pytest.mark.parametrize(
    ("cells", "answer"),
    [
        ([(PROMPT, MARKED)], PROMPT),
        ([(PROMPT, MARKED), TESTED, MINE], f"{PROMPT}\n\n{MINE}"),
        ([MINE, (PROMPT, MARKED)], f"{MINE}\n\n{PROMPT}"),
        ([("See below.", MARKED), TESTED, MINE], f"See below.\n\n{MINE}"),
        ([(MINE, MARKED), TESTED], MINE),
        ([MINE], f"{PROMPT}\n\n{MINE}"),
        ([(PROMPT, MARKED), new_code_cell(f"print({MINE!r})")], f"{PROMPT}\n\nprint({MINE!r})"),
    ],
    ids=["untouched", "below", "above", "below it says", "tried beside it", "the cell deleted", "printed"],
)
def test_what_is_written_around_a_question_s_cell_is_its_answer(cells, answer):
    released = [
        new_markdown_cell("Exercise q"),
        new_markdown_cell(PROMPT, metadata=MARKED),
        new_markdown_cell("The next section"),
    ]
    parts = [(one, {}) if isinstance(one, str) else one for one in cells]
    between = [new_markdown_cell(one[0], metadata=one[1]) if isinstance(one, tuple) else one for one in parts]
    handed_in = new_notebook(cells=copy.deepcopy([released[0], *between, released[2]]))
    take_from_beside(handed_in, released)
    assert [cell.source for cell in handed_in.cells if "nbgrader" in cell.metadata] == [answer]


# Collecting


@pytest.fixture
def gathered(course, tmp_path):
    """A function that collects files, each a notebook with a number in it; the numbers by student."""

    def run(*paths: str, roster: str = "", zipped: bool = False) -> tuple[dict[str, str], dict[str, str]]:
        folder = tmp_path / "export"
        for number, path in enumerate(paths):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(answered(course, {"one": f"version {number}"}), target)
        if zipped:
            with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
                for path in paths:
                    archive.write(folder / path, path)
            folder = tmp_path / "export.zip"
        (tmp_path / "students.csv").write_text(roster or "id\n")
        known = {NAME: {"one", "two", "three"}, "02_other": {"four"}}
        found, left = collect(folder, known, tmp_path / "submitted", read_roster(tmp_path / "students.csv"))
        texts = {one.student: (tmp_path / "submitted" / one.student / NAME / f"{NAME}.ipynb") for one in found}
        return {who: path.read_text().split("version ")[1][0] for who, path in texts.items()}, left

    return run


EXPORTS = tomllib.loads(Path(__file__).with_name("exports.toml").read_text(encoding="utf-8"))
TABLES = EXPORTS.pop("tables")


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("exported", EXPORTS.values(), ids=EXPORTS)
def test_files_count_for_their_students(gathered, exported, zipped):
    people, files = exported.get("people"), exported["files"]
    roster = f"id,first_name,last_name,lms_user_id\n{people}\n" if people else ""
    found, left = gathered(*files, roster=roster, zipped=zipped)
    assert found == {student: str(number) for number, student in enumerate(files.values()) if student}
    assert set(left) == {path for path, student in files.items() if not student}


def test_a_file_put_in_by_hand_counts_later_too(gathered, tmp_path):
    canvas = "smithjohn_12345_678901_01_tiny.ipynb"
    assert gathered(canvas)[0] == {"smithjohn": "0"}
    shutil.rmtree(tmp_path / "export")
    assert gathered("unused/of_this_course.txt", "smithjohn/mine.ipynb")[0]["smithjohn"] == "1"
    shutil.rmtree(tmp_path / "export")
    found, left = gathered(canvas)
    assert found == {"smithjohn": "1"} and "put in by hand counts" in left[canvas]
    shutil.rmtree(tmp_path / "export")
    assert gathered("smithjohn/newer.ipynb")[0] == {"smithjohn": "0"}


def test_a_zip_file_that_holds_gigabytes_is_not_read(gathered, course, tmp_path):
    (tmp_path / "export").mkdir()
    with zipfile.ZipFile(tmp_path / "export" / "eve.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("01_tiny.ipynb", "w") as file:
            for _ in range(40):
                file.write(bytes(1_000_000))
        archive.writestr("data.bin", bytes(1_000_000))
    tracemalloc.start()
    _, left = gathered("ada/01_tiny.ipynb")
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()
    assert "larger than 20 MB" in left["eve.zip/01_tiny.ipynb"] and left["eve.zip/data.bin"] == "not a notebook"


def test_where_feedback_goes_is_kept_for_files_put_in_by_hand(gathered, tmp_path):
    canvas, moodle = "smithjohn_12345_678901_01_tiny-1.ipynb", "Ann Lee_7_assignsubmission_file_/x.ipynb"
    gathered(canvas, moodle, "smithjohn/01_tiny.ipynb")
    shutil.rmtree(tmp_path / "export")
    gathered("Ann_Lee/01_tiny.ipynb")
    back = sorted(path.read_text() for path in tmp_path.glob("submitted/*/*/back.txt"))
    assert back == ["Ann Lee_7_assignsubmission_file_/01_tiny.html", "smithjohn_12345_678901_01_tiny.html"]


def test_late_is_kept(gathered, tmp_path):
    gathered("leeann_LATE_12346_678902_01_tiny.ipynb", "smithjohn_12345_678901_01_tiny.ipynb")
    assert [path.parts[-3] for path in tmp_path.glob("submitted/*/*/late.txt")] == ["leeann"]


def test_a_mark_of_the_order_of_bytes_does_no_harm(course, tmp_path):
    path = tmp_path / "export" / "ada" / "01.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(nbformat.writes(answered(course, {})), encoding="utf-8-sig")
    collect(tmp_path / "export", {NAME: {"one"}}, tmp_path / "submitted", [])
    nbformat.read(tmp_path / "submitted" / "ada" / NAME / f"{NAME}.ipynb", as_version=4)


@pytest.mark.parametrize("spoilt", [{"source": None}, {"outputs": [{}]}, {"metadata": {"nbgrader": {"grade_id": 5}}}])
def test_what_nbgrader_cannot_read_is_not_collected(course, tmp_path, spoilt):
    notebook = answered(course, {})
    notebook.cells[1].update(spoilt)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "Ada Li - 01.ipynb").write_text(json.dumps(notebook))
    found, left = collect(tmp_path / "export", {NAME: {"one"}}, tmp_path / "submitted", [])
    assert not found and "if JupyterLab opens it" in left["Ada Li - 01.ipynb"]


def test_moodle_s_worksheet_is_a_class_list_that_says_how_late_and_may_lack_columns(gathered, tmp_path):
    paths = (f"Participant_{number}_assignsubmission_file_/01_tiny.ipynb" for number in (1234, 1235))
    assert gathered(*paths, roster=TABLES["moodle"])[0] == {"ann@example.org": "0", "Bo_Li": "1"}
    late = {path.parts[-3]: path.read_text() for path in tmp_path.glob("submitted/*/*/late.txt")}
    assert late == {"ann@example.org": "2 days 3 hours"}
    (tmp_path / "students.csv").write_text("Identifier,Full name\nParticipant 7,Li Wei\nParticipant 8,Li Wei\n")
    namesakes = read_roster(tmp_path / "students.csv")
    assert [(row["id"], row["lms_user_id"]) for row in namesakes] == [("Li_Wei_7", "p7"), ("Li_Wei_8", "p8")]


@pytest.mark.parametrize(
    "columns", ["ID,Vollständiger Name,E-Mail-Adresse,Status", "ID,Name", "Identifier,Status", "no"]
)
def test_a_table_without_the_columns_of_a_class_list_is_refused(tmp_path, columns):
    (tmp_path / "students.csv").write_text(f"{columns}\nTeilnehmer/in7,Ann Lee,a@example.org,Abgegeben\n")
    with pytest.raises(ValueError, match=f"needs the columns id; or ID,Student; or .* It has {columns}"):
        read_roster(tmp_path / "students.csv")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_roster_may_have_other_separators(tmp_path, separator):
    path = tmp_path / "students.csv"
    path.write_text("id,last_name\njs1,Smith\n".replace(",", separator), encoding="utf-8-sig")
    assert read_roster(path) == [{"id": "js1", "last_name": "Smith"}]
    path.write_text("id, last_name\njs/1 , Smith,\n")
    assert read_roster(path) == [{"id": "js_1", "last_name": "Smith"}]
    path.write_bytes("id;last_name\njs1;Müller\n".encode("cp1252"))
    with pytest.raises(ValueError, match="CSV UTF-8"):
        read_roster(path)


@in_sandbox
def test_canvas_gets_its_own_table_back(own, tmp_path):
    (tmp_path / "canvas.csv").write_text(TABLES["canvas"], encoding="utf-8-sig")
    people = read_roster(tmp_path / "canvas.csv")
    assert [(row["id"], row["first_name"], row["lms_user_id"]) for row in people] == [
        ("ada@example.org", "Ada", "1001"),
        ("1002", "Eve", "1002"),
        ("bob", "Bob", "1003"),
    ]
    people[0]["id"], people[1]["id"] = "ada", "eve"  # as they are called here
    with own.gradebook() as gradebook:
        grade = gradebook.find_grade("written", NAME, NAME, "ada")
        grade.manual_score, grade.needs_manual_grade = 3, False
        gradebook.db.commit()
    total = row_of(own)[""]
    report.write_marks(own, own.root / "grades.csv", people)
    assert total and (own.root / "canvas.csv").read_text().splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,Week 1: 01_tiny (4711)",
        "    Points Possible,,,,,10",
        f'"Right, Ada",1001,u1,ada@example.org,A,{total}',
    ]


def test_what_belongs_to_nobody_is_listed(gathered, tmp_path):
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "essay.pdf").write_bytes(b"%PDF")
    (tmp_path / "export" / "broken.zip").write_bytes(b"PK")
    nbformat.write(new_notebook(cells=[new_code_cell("1")]), tmp_path / "export" / "jane_01_tiny.ipynb")
    found, left = gathered("01_tiny (1).ipynb", "li_11_1_a.ipynb", "li_12_2_a.ipynb")
    assert not found and {"essay.pdf", "broken.zip"} < set(left)
    assert "whose it is" in left["01_tiny (1).ipynb"] and "no exercise" in left["jane_01_tiny.ipynb"]
    assert "several students are called li" in left["li_11_1_a.ipynb"] == left["li_12_2_a.ipynb"]
