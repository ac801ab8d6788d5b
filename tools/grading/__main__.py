"""`make grade`: collects submissions, has nbgrader grade them in a sandbox, and writes what teacher and students need.

    python -m tools.grading --submissions FOLDER --notebook 01_build_cyclegan
    python -m tools.grading --table             # make grades: all pages again, with the marks by hand; runs no answers

Writes into assignments/: submitted/, autograded/, feedback/STUDENT/NOTEBOOK/NOTEBOOK.html, grades.csv with the marks of
all notebooks so far, NOTEBOOK.html, the report on the class, and NOTEBOOK-feedback.zip for Moodle.
"""

import argparse
import secrets
import sys
import time
import warnings
import zipfile
from pathlib import Path

import nbformat
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.utils import capture_log
from sqlalchemy.exc import SAWarning

from tools import assignments
from tools.grading import report, sandbox
from tools.grading.collect import MOODLE_FOLDER, collect, read_roster
from tools.grading.course import Course, points_of
from tools.grading.execute import RunExercises


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


def grade(course: Course, notebook: str) -> dict[str, str]:
    """Grade all submissions of a notebook; the reasons for those that could not be graded."""
    failed = {}
    for student in course.submitted(notebook):
        begun = time.monotonic()
        if failure := convert(course, Autograde, notebook, student):
            failed[student] = failure
        how = f"not graded: {failure}" if failure else "graded"
        print(f"{notebook} {student}: {how} ({time.monotonic() - begun:.1f} s)", flush=True)
    return failed


def write_pages(course: Course, notebook: str) -> None:
    """Write the feedback on a notebook, the report on the class, and the feedback as Moodle takes it back.

    Its "Upload multiple feedback files in a zip" wants them in folders named as in its export.
    """
    # All at once: to load the page's template takes longer than to fill it.
    if failure := convert(course, GenerateFeedback, notebook, "*"):
        print(f"{notebook} has not all of its feedback: {failure}")
    report.write_class(course, notebook, course.root / f"{notebook}.html")
    print(f"The class: {course.root / notebook}.html")
    if folders := sorted(course.root.glob(f"submitted/*/{notebook}/{MOODLE_FOLDER}")):
        with zipfile.ZipFile(course.root / f"{notebook}-feedback.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for folder in folders:
                page = course.root / "feedback" / folder.parts[-3] / notebook / f"{notebook}.html"
                if page.exists():
                    archive.write(page, f"{folder.read_text(encoding='utf-8')}/{page.name}")
        print(f"Feedback for Moodle: {archive.filename}")


def changed(course: Course) -> list[str]:
    """The notebooks that are no longer those from which `make assignments` made what students get."""
    found = []
    for copy in sorted(course.root.glob("source/*/*.ipynb")):
        own = assignments.ROOT / "notebooks" / copy.name
        if own.exists() and assignments.without_our_own(nbformat.read(own, 4)) != nbformat.read(copy, 4):
            found.append(copy.stem)
    return found


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--submissions", type=Path, help="folder or zip file; default: what was collected before")
    source.add_argument("--table", action="store_true", help="grade nothing: write marks and pages from the gradebook")
    parser.add_argument("--notebook", help="default: all that the submissions hold")
    parser.add_argument("--students", type=Path, help="CSV file: id, first_name, last_name, email, lms_user_id")
    parser.add_argument("--isolation", choices=sandbox.KINDS, help="default: the first that works, but never none")
    parser.add_argument("--seed", type=int, help="draws of the checks, as an earlier run printed it")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    return parser


def gather(course: Course, folder: Path, people: list[dict[str, str]]) -> tuple[set[str], dict[str, str]]:
    """Collect submissions and say what was found; the notebooks among them, and the other files with the reason."""
    exercises = {name: {*points_of(cells)} for name, cells in course.released().items()}
    found, left = collect(folder, exercises, course.root / "submitted", people)
    print(f"{len(found)} notebooks of {len({one.student for one in found})} students in {folder}")
    for path, why in left.items():
        print(f"  not graded: {path}: {why}")
    return {one.notebook for one in found}, left


def main(arguments: list[str] | None = None) -> int:
    """The command line; the number of submissions that could not be graded."""
    parser = options()
    asked = parser.parse_args(arguments)
    course = Course(asked.course)
    if not course.released():
        assignments.make(sorted(assignments.ROOT.glob("notebooks/*.ipynb")), course.root)
    if names := changed(course):
        print(f"Changed in notebooks/ since they were handed out: {', '.join(names)}. Run make assignments.")
    try:
        people = read_roster(asked.students)
        kind = "" if asked.table else sandbox.choose(asked.isolation or "")
        if asked.submissions and not asked.submissions.exists():
            raise ValueError(f"{asked.submissions} does not exist: SUBMISSIONS is a folder or a zip file")
    except (RuntimeError, ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    names, left = gather(course, asked.submissions, people) if asked.submissions else ({*course.released()}, {})
    notebooks = [one for one in sorted(names) if asked.notebook in (None, one) and course.submitted(one)]
    failures = 0
    if not asked.table:
        seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
        course.config.RunExercises.update(isolation=kind, seed=seed)
        print(f"Students' code runs in the sandbox: {kind}. SEED={seed} gives the same marks again.")
        for notebook in notebooks:
            failed = grade(course, notebook)
            course.keep_run(notebook, seed=seed, sandbox=kind, not_graded=left | failed)
            failures += len(failed)
        RunExercises.end()
    for notebook in notebooks:
        write_pages(course, notebook)
    report.write_marks(course, course.root / "grades.csv", people)
    print(f"Marks: {course.root / 'grades.csv'}; feedback: {course.root / 'feedback'}")
    return failures


if __name__ == "__main__":
    sys.exit(min(main(), 1))
