"""`make grade`: collects submissions, has nbgrader grade them in a sandbox, and writes what teacher and students need.

    python -m tools.grading --submissions FOLDER --notebook 01_build_cyclegan

Writes into assignments/: submitted/, autograded/, feedback/STUDENT/NOTEBOOK/NOTEBOOK.html, grades.csv with the marks of
all notebooks so far, and NOTEBOOK.html, the report on the class.
"""

import argparse
import secrets
import sys
import time
import warnings
from pathlib import Path

from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.utils import capture_log
from sqlalchemy.exc import SAWarning

from tools import assignments
from tools.grading import report, sandbox, table
from tools.grading.collect import collect, read_roster
from tools.grading.course import Course
from tools.grading.execute import RunExercises, is_marked


def gather(course: Course, folder: Path, roster: Path | None) -> set[str]:
    """Collect submissions and say what was found; the notebooks among them."""
    released = course.released().items()
    marks = {name: {cell.metadata.nbgrader.grade_id for cell in cells if is_marked(cell)} for name, cells in released}
    found, left = collect(folder, marks, course.root / "submitted", roster)
    print(f"{len(found)} notebooks of {len({one.student for one in found})} students in {folder}")
    if left:
        print(f"{len(left)} files are not graded:", *(f"  {path}: {why}" for path, why in left.items()), sep="\n")
    return {one.notebook for one in found}


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


def grade(course: Course, notebook: str) -> dict[tuple[str, str], str]:
    """Grade all submissions of a notebook and write their feedback; the reasons for those that could not be graded."""
    failed = {}
    for student in course.submitted(notebook):
        begun = time.monotonic()
        if failure := convert(course, Autograde, notebook, student):
            failed[student, notebook] = failure
        graded = next(iter(course.graded(notebook, [student])), None)
        told = f"not graded: {failure}" if failure or not graded else f"{points(graded)} {table.notes(graded)}"
        print(f"{notebook} {student}: {told} ({time.monotonic() - begun:.1f} s)", flush=True)
    # All at once: to load the page's template takes longer than to fill it.
    failure = convert(course, GenerateFeedback, notebook, "*")
    for student in course.submitted(notebook):
        if failure and not (course.root / "feedback" / student / notebook / f"{notebook}.html").exists():
            failed.setdefault((student, notebook), f"without feedback: {failure}")
    return failed


def points(graded: table.Graded) -> str:
    """The points of each exercise."""
    return ", ".join(
        f"{one.name} {'?' if one.points is None else f'{one.points:g}'}" for one in graded.exercises.values()
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line; the number of submissions that could not be graded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=Path, help="folder or zip file; default: what was collected before")
    parser.add_argument("--notebook", help="default: all that the submissions hold")
    parser.add_argument("--students", type=Path, help="CSV file: id, first_name, last_name, email, lms_user_id")
    parser.add_argument("--isolation", choices=sandbox.KINDS, help="default: the first that works, but never none")
    parser.add_argument("--seed", type=int, help="draws of the checks, as an earlier run printed it")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    asked = parser.parse_args(arguments)
    course = Course(asked.course)
    if not course.released():
        assignments.make(sorted(assignments.ROOT.glob("notebooks/*.ipynb")), course.root)
    try:
        kind = sandbox.choose(asked.isolation or "")
        people = read_roster(asked.students)
        if asked.submissions and not asked.submissions.exists():
            raise ValueError(f"{asked.submissions} does not exist: SUBMISSIONS is a folder or a zip file")
    except (RuntimeError, ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    course.config.RunExercises.isolation, course.config.RunExercises.seed = kind, seed
    print(f"Students' code runs in the sandbox: {kind}. SEED={seed} gives the same marks again.")
    notebooks = gather(course, asked.submissions, asked.students) if asked.submissions else set(course.released())
    with course.gradebook() as gradebook:
        for row in people:
            known = {key: row[key] for key in ("first_name", "last_name", "email", "lms_user_id") if row.get(key)}
            gradebook.update_or_create_student(row["id"], **known)
    failed = {}
    for notebook in sorted(notebooks & {asked.notebook} if asked.notebook else notebooks):
        if course.submitted(notebook):
            failed |= grade(course, notebook)
            note = f"Checks drew from SEED={seed}; the sandbox was: {kind}."
            report.write(course, notebook, course.root / f"{notebook}.html", note)
            print(f"The class: {course.root / f'{notebook}.html'}")
    RunExercises.end()
    table.write(course, course.root / "grades.csv", asked.students, failed)
    print(f"Marks: {course.root / 'grades.csv'}; feedback: {course.root / 'feedback'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
