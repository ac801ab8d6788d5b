"""`make grade`: collects submissions, has nbgrader grade them in a sandbox, and writes what teacher and students need.

    python -m tools.grading --submissions FOLDER --notebook 01_build_cyclegan
    python -m tools.grading --table             # make grades: all pages again, with the marks by hand; runs no answers
    python -m tools.grading --feedback-zip      # make feedback-zip: the students' pages for Moodle

Writes into assignments/: submitted/, autograded/, feedback/STUDENT/NOTEBOOK/NOTEBOOK.html, grades.csv with the marks of
all notebooks so far, and NOTEBOOK.html, the report on the class.
"""

import argparse
import secrets
import sys
import time
import warnings
from pathlib import Path

import nbformat
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.utils import capture_log
from sqlalchemy.exc import SAWarning

from tools import assignments
from tools.grading import moodle, report, sandbox, table
from tools.grading.collect import collect, read_roster
from tools.grading.course import Course
from tools.grading.execute import RunExercises, is_marked

Failed = dict[tuple[str, str], str]  # by student and notebook, why it has no marks or no feedback


def gather(course: Course, folder: Path, roster: Path | None) -> tuple[set[str], dict[str, str]]:
    """Collect submissions and say what was found; the notebooks among them, and the other files with the reason."""
    released = course.released().items()
    marks = {name: {cell.metadata.nbgrader.grade_id for cell in cells if is_marked(cell)} for name, cells in released}
    found, left = collect(folder, marks, course.root / "submitted", roster)
    print(f"{len(found)} notebooks of {len({one.student for one in found})} students in {folder}")
    if left:
        print(f"{len(left)} files are not graded:", *(f"  {path}: {why}" for path, why in left.items()), sep="\n")
    return {one.notebook for one in found}, left


def convert(course: Course, converter: type[Autograde | GenerateFeedback], notebook: str, student: str) -> str:
    """Have nbgrader grade a submission, or write its feedback; the reason if that failed, else ""."""
    course.directory.assignment_id, course.directory.student_id = notebook, student
    app = converter(coursedir=course.directory, config=course.config)
    app.force = True
    app.log.propagate = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # of nbgrader's own queries
        result = capture_log(app)
    if result["success"]:
        return ""
    told = [line for line in result.get("log", result["error"]).splitlines() if "Error: " in line]
    return told[-1] if told else result["error"].strip().splitlines()[-1]


def grade(course: Course, notebook: str) -> Failed:
    """Grade all submissions of a notebook; the reasons for those that could not be graded."""
    failed = {}
    for student in course.submitted(notebook):
        begun = time.monotonic()
        if failure := convert(course, Autograde, notebook, student):
            failed[student, notebook] = f"not graded: {failure}"
        graded = next(iter(course.graded(notebook, [student])), None)
        told = f"not graded: {failure}" if failure or not graded else f"{points(graded)} {table.notes(graded)}"
        print(f"{notebook} {student}: {told} ({time.monotonic() - begun:.1f} s)", flush=True)
    return failed


def points(graded: table.Graded) -> str:
    """The points of each exercise."""
    return ", ".join(
        f"{one.name} {'?' if one.points is None else f'{one.points:g}'}" for one in graded.exercises.values()
    )


def write_pages(course: Course, notebook: str, run: str) -> Failed:
    """Write the feedback on a notebook and the report on the class; the reasons for submissions without feedback."""
    # All at once: to load the page's template takes longer than to fill it.
    failure = convert(course, GenerateFeedback, notebook, "*")
    report.write(course, notebook, course.root / f"{notebook}.html", run)
    print(f"The class: {course.root / notebook}.html")
    missing = [one.student for one in course.graded(notebook) if not course.feedback(one.student, notebook).exists()]
    return {(student, notebook): f"without feedback: {failure}" for student in missing if failure}


def strangers(course: Course, people: list[dict[str, str]]) -> list[str]:
    """What a teacher has to look at where there is a class list: names that are not in it."""
    students = {student for notebook in course.released() for student in course.submitted(notebook)}
    if not people or not (strangers := sorted(students - {row["id"] for row in people})):
        return []
    return [
        f"Not in the class list ({len(strangers)}): {', '.join(strangers)}",
        "  Correct the list, or put their notebooks into folders with ids of the list and grade again. Then remove "
        f"what was collected under these names from {course.root / 'submitted'}.",
    ]


def changed(course: Course) -> list[str]:
    """The notebooks that are no longer those from which `make assignments` made what students get."""
    found = []
    for copy in sorted((course.root / "source").glob("*/*.ipynb")):
        own = assignments.ROOT / "notebooks" / copy.name
        if own.exists() and assignments.without_our_own(nbformat.read(own, 4)) != nbformat.read(copy, 4):
            found.append(copy.stem)
    return found


def pack(course: Course, notebooks: list[str]) -> None:
    """Write the feedback on each notebook for Moodle, and say whose is not in it."""
    for notebook in notebooks:
        path = course.root / f"{notebook}-feedback.zip"
        missing = moodle.pack(course, notebook, path)
        print(f"Feedback for Moodle: {path}", *(f"  without {student}" for student in missing), sep="\n")


def run(course: Course, asked: argparse.Namespace, kind: str) -> tuple[list[str], Failed, str]:
    """Collect and grade; the notebooks, the reasons for submissions without marks, and the report's part about it."""
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    course.config.RunExercises.isolation, course.config.RunExercises.seed = kind, seed
    print(f"Students' code runs in the sandbox: {kind}. SEED={seed} gives the same marks again.")
    if names := changed(course):
        print(f"Changed in notebooks/ since they were handed out: {', '.join(names)}. Run make assignments.")
    found, left = set(course.released()), {}
    if asked.submissions:
        found, left = gather(course, asked.submissions, asked.students)
    notebooks = handed_in(course, found, asked.notebook)
    failed = {}
    for notebook in notebooks:
        failed |= grade(course, notebook)
    RunExercises.end()
    left |= {f"{student}: {notebook}": why.removeprefix("not graded: ") for (student, notebook), why in failed.items()}
    return notebooks, failed, report.about_run(f"Checks drew from SEED={seed}; the sandbox was: {kind}.", left)


def handed_in(course: Course, notebooks: set[str], only: str | None) -> list[str]:
    """Those of the notebooks that a student handed in."""
    return [one for one in sorted(notebooks) if only in (None, one) and course.submitted(one)]


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--submissions", type=Path, help="folder or zip file; default: what was collected before")
    source.add_argument("--table", action="store_true", help="grade nothing: write marks and pages from the gradebook")
    source.add_argument("--feedback-zip", action="store_true", help="grade nothing: pack the feedback for Moodle")
    parser.add_argument("--notebook", help="default: all that the submissions hold")
    parser.add_argument("--students", type=Path, help="CSV file: id, first_name, last_name, email, lms_user_id")
    parser.add_argument("--isolation", choices=sandbox.KINDS, help="default: the first that works, but never none")
    parser.add_argument("--seed", type=int, help="draws of the checks, as an earlier run printed it")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command line; the number of submissions that could not be graded."""
    parser = options()
    asked = parser.parse_args(arguments)
    course = Course(asked.course)
    if not course.released():
        assignments.make(sorted(assignments.ROOT.glob("notebooks/*.ipynb")), course.root)
    try:
        people = read_roster(asked.students)
        kind = "" if asked.table or asked.feedback_zip else sandbox.choose(asked.isolation or "")
        if asked.submissions and not asked.submissions.exists():
            raise ValueError(f"{asked.submissions} does not exist: SUBMISSIONS is a folder or a zip file")
    except (RuntimeError, ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    notebooks, failed, about = handed_in(course, set(course.released()), asked.notebook), {}, ""
    if asked.feedback_zip:
        pack(course, notebooks)
        return 0
    with course.gradebook() as gradebook:
        for row in people:
            known = {key: row[key] for key in ("first_name", "last_name", "email", "lms_user_id") if row.get(key)}
            gradebook.update_or_create_student(row["id"], **known)
    if not asked.table:
        notebooks, failed, about = run(course, asked, kind)
    for notebook in notebooks:
        failed = write_pages(course, notebook, about) | failed
    table.write(course, course.root / "grades.csv", asked.students, failed)
    print(f"Marks: {course.root / 'grades.csv'}; feedback: {course.root / 'feedback'}")
    for line in strangers(course, people):
        print(line)
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
