"""`make grade`: collects submissions, has nbgrader grade them in a sandbox, and writes what teacher and students need.

    python -m tools.grading --submissions FOLDER --notebook 01_build_cyclegan
    python -m tools.grading                     # grades what has changed, and reads the marks by hand
    python -m tools.grading --student NAME      # grades this student again, with the seed of the class

Writes into assignments/: submitted/, autograded/, feedback/STUDENT/NOTEBOOK/NOTEBOOK.html, grades.csv with the marks of
all notebooks so far, NOTEBOOK.html, the report on the class, and NOTEBOOK-feedback.zip for the platform.
"""

import argparse
import re
import secrets
import time
import warnings
import zipfile
from pathlib import Path

import nbformat
import pandas as pd
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.utils import capture_log
from sqlalchemy.exc import SAWarning

from tools import assignments
from tools.grading import by_hand, report, sandbox
from tools.grading.collect import BACK, collect, read_roster
from tools.grading.course import Course, answers_of, number_of, points_of
from tools.grading.execute import RunExercises

ERROR = re.compile(r"^\s*(?:\w+\.)*(\w+(?:Error|Exception|Entry)\b.*)", re.MULTILINE)  # the last line of a traceback


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
    told = ERROR.findall(result.get("log", "")) or ERROR.findall(result["error"])
    return f"{(told or result['error'].splitlines())[-1].strip()}: copy the answers into a fresh notebook"


def waiting(course: Course, notebook: str, seed: int) -> list[str]:
    """The students whose submission, or what it is graded by, has changed since it was graded."""
    done = course.run(notebook)["graded"]
    numbers = {student: course.fingerprint(notebook, student, seed) for student in course.submitted(notebook)}
    return [student for student, number in numbers.items() if done.get(student, {}).get("fingerprint") != number]


def grade(course: Course, notebook: str, student: str, seed: int) -> bool:
    """Grade a submission; whether that failed. Marks by hand stay for the text that they were given for."""
    begun = time.monotonic()
    failure = convert(course, Autograde, notebook, student)
    how = f"not graded: {failure}" if failure else "graded"
    print(f"{notebook} {student}: {how} ({time.monotonic() - begun:.1f} s)", flush=True)
    run = course.run(notebook)
    if failure:
        run["graded"].get(student, {}).pop("fingerprint", None)
        run["not_graded"][student] = failure
    else:
        path = course.root / "autograded" / student / notebook / f"{notebook}.ipynb"
        answers = answers_of(nbformat.read(path, as_version=4).cells)
        now = {exercise: number_of(text) for exercise, text in answers.items()}
        before = run["graded"].get(student, {}).get("answers", now)
        changed = {exercise for exercise, number in now.items() if before.get(exercise) != number}
        run["earlier"].setdefault(student, {}).update(by_hand.take_back(course, notebook, student, changed))
        fingerprint = course.fingerprint(notebook, student, seed)
        run["graded"][student] = {"fingerprint": fingerprint, "answers": now}
        run["not_graded"].pop(student, None)
    course.keep_run(notebook, run)
    return bool(failure)


def write_feedback(course: Course, notebook: str) -> None:
    """Write the pages of feedback that are no longer what the gradebook says, or that are not there yet."""
    run, folder = course.run(notebook), course.root / "feedback"
    says = {
        one.student: number_of(repr([one.exercises, run["graded"].get(one.student)])) for one in course.graded(notebook)
    }
    there = {student for student in says if (folder / student / notebook / f"{notebook}.html").exists()}
    stale = [student for student, number in says.items() if student not in there or run["pages"].get(student) != number]
    if not stale:
        return
    # All at once: to load the page's template takes longer than to fill it.
    if failure := convert(course, GenerateFeedback, notebook, stale[0] if len(stale) == 1 else "*"):
        print(f"{notebook} has not all of its feedback: {failure}")
    else:
        course.keep_run(notebook, run | {"pages": says})


def pack_feedback(course: Course, notebook: str) -> None:
    """Pack the pages of feedback as the platform takes them back, if the notebooks came from one that does.

    Moodle wants them in folders named as in its export, and Canvas in files that begin as the students' files.
    """
    if ways := sorted(course.root.glob(f"submitted/*/{notebook}/{BACK}")):
        with zipfile.ZipFile(course.root / f"{notebook}-feedback.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for way in ways:
                page = course.root / "feedback" / way.parts[-3] / notebook / f"{notebook}.html"
                if page.exists():
                    archive.write(page, way.read_text(encoding="utf-8"))
        print(f"Feedback for Canvas or Moodle: {archive.filename}")


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
    parser.add_argument("--submissions", type=Path, help="folder or zip file; default: what was collected before")
    parser.add_argument("--notebook", help="default: all that the submissions hold")
    parser.add_argument("--student", help="grade this one, changed or not; default: all that have changed")
    parser.add_argument("--students", type=Path, help="class list, see read_roster; default: the one given last")
    parser.add_argument("--isolation", choices=sandbox.KINDS, help="default: the first that works, but never none")
    parser.add_argument("--seed", type=int, help="draws of the checks; default: as the notebook was graded before")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    return parser


def class_list(course: Course, given: Path | None) -> list[dict[str, str]]:
    """The class list, which stays in the course's folder for the next time; but not how late a hand-in was."""
    kept = course.root / "class_list.csv"
    people = read_roster(given or (kept if kept.exists() else None))
    if given and people:
        pd.DataFrame(people).drop(columns="late", errors="ignore").to_csv(kept, index=False)
    return people


def gather(course: Course, folder: Path, people: list[dict[str, str]]) -> tuple[set[str], dict[str, str]]:
    """Collect submissions and say what was found; the notebooks among them, and the other files with the reason."""
    exercises = {name: {*points_of(cells)} for name, cells in course.released().items()}
    found, left = collect(folder, exercises, course.root / "submitted", people)
    print(f"{len(found)} notebooks of {len({one.student for one in found})} students in {folder}")
    for path, why in left.items():
        print(f"  not graded: {path}: {why}")
    return {one.notebook for one in found}, left


def grade_class(course: Course, notebook: str, asked: argparse.Namespace, left: dict[str, str] | None) -> int:
    """Grade what is to be graded of a notebook; the number of submissions for which that failed."""
    run = course.run(notebook)
    seed = run.get("seed", secrets.randbelow(2**31)) if asked.seed is None else asked.seed
    students = [asked.student] if asked.student else waiting(course, notebook, seed)
    if left is not None:
        course.keep_run(notebook, run | {"not_graded": left})
    if not students:
        return 0
    kind = sandbox.choose(asked.isolation or "")
    course.config.RunExercises.update(isolation=kind, seed=seed)
    print(f"Students' code runs in the sandbox: {kind}. SEED={seed} gives the same marks again.")
    course.keep_run(notebook, course.run(notebook) | {"seed": seed, "sandbox": kind})
    return sum(grade(course, notebook, student, seed) for student in students)


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
        known, people = course.named(asked.notebook), class_list(course, asked.students)
        if asked.submissions and not asked.submissions.exists():
            raise ValueError(f"{asked.submissions} does not exist: SUBMISSIONS is a folder or a zip file")
        names, left = gather(course, asked.submissions, people) if asked.submissions else (known, None)
        notebooks = [one for one in known if one in names and course.submitted(one)]
        if asked.student:
            notebooks = [one for one in notebooks if asked.student in course.submitted(one)]
        if asked.student and not notebooks:
            raise ValueError(f"{asked.student} has handed in none of these notebooks: STUDENT is an id of grades.csv")
        if asked.notebook and not notebooks:
            raise ValueError(f"{asked.notebook} is not among what was handed in")
        failures = sum(grade_class(course, notebook, asked, left) for notebook in notebooks)
        RunExercises.end()
        for notebook in notebooks:
            by_hand.read_marks(course, notebook)
            write_feedback(course, notebook)
            pack_feedback(course, notebook)
            report.write_class(course, notebook, course.root / f"{notebook}.html")
            print(f"The class: {course.root / notebook}.html")
    except (RuntimeError, ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    report.write_marks(course, course.root / "grades.csv", people)
    print(f"Marks: {course.root / 'grades.csv'}; feedback: {course.root / 'feedback'}")
    if failures:
        print(f"{failures} submissions could not be graded: the notes of grades.csv say why.")
    return failures


if __name__ == "__main__":
    main()
