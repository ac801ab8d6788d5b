"""`make grade`: has nbgrader collect and grade what was handed in, and writes what teacher and students need.

    python -m tools.grading --submissions FOLDER_OR_ZIP --notebook 01_build_cyclegan --students gradebook.csv
    python -m tools.grading --notebook 01_build_cyclegan     # grades this notebook of the whole class again
    python -m tools.grading                                  # only what is new; marks from formgrader, too

Writes into assignments/: autograded/, feedback/, grades.csv with the marks of all notebooks so far, canvas.csv, and
NOTEBOOK.html, the report on the class.
"""

import argparse
import os
import re
import shutil
import warnings
from pathlib import Path

import nbformat
from nbgrader.apps import NbGrader, ZipCollectApp
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.utils import capture_log
from sqlalchemy.exc import SAWarning

from tools.grading import container, report
from tools.grading.course import LATE, NOT_GRADED, Course
from tools.grading.people import CLASS_LIST, read_people

KERNEL_DIED = "an answer ended the kernel, by exit() or by taking all memory"  # nbclient has two words for it
ERROR = re.compile(r"^\s*(?:\w+\.)*(?:\w+Error|\w+Exception|MissingEntry): (.+)", re.MULTILINE)


def run(course: Course, app_class: type[NbGrader], notebook: str, student: str = "*") -> tuple[NbGrader, str]:
    """Run one of nbgrader's programs; the program, and the reason if it failed, else ""."""
    course.directory.assignment_id, course.directory.student_id = notebook, student
    app = app_class(coursedir=course.directory, config=course.config)
    app.force, app.log.propagate = True, False
    app.log.setLevel("ERROR")  # what it says of each file would hide what follows
    warnings.simplefilter("ignore", SAWarning)  # of nbgrader's own queries
    result = capture_log(app)
    if result["success"]:
        return app, ""
    return app, (ERROR.findall(result.get("log", "")) or result["error"].splitlines())[-1].strip()


def collect(course: Course, submissions: Path, notebook: str) -> dict[str, str]:
    """Have nbgrader collect the files of a notebook; those that are not graded, with the reason.

    What has changed since an earlier time is no longer graded.
    """
    before = {path: path.read_bytes() for path in course.root.glob(f"submitted/*/{notebook}/{notebook}.ipynb")}
    folder = course.root / "downloaded" / notebook
    if folder in (here := submissions.resolve(), *here.parents):
        raise ValueError(f"{submissions} is where hand-ins are unpacked: move the files out of {folder.parent} first")
    shutil.rmtree(folder, ignore_errors=True)
    if not submissions.is_dir():
        shutil.unpack_archive(submissions, folder / "unpacked", "zip")
    source = submissions if submissions.is_dir() else folder / "unpacked"
    names = [one for one in source.iterdir() if one.name != "__MACOSX"]
    if len(names) == 1 and names[0].is_dir() and len([*names[0].iterdir()]) > 1:  # a folder around all
        source = names[0]
    shutil.copytree(source, folder / "archive", ignore=shutil.ignore_patterns(".*", "__MACOSX"))
    app, failure = run(course, ZipCollectApp, notebook)
    if failure:
        raise ValueError(f"{submissions} cannot be collected: {failure}")
    for student in course.submitted(notebook):
        path = course.handed_in(student, notebook)
        if not path.exists() or before.get(path) != path.read_bytes():
            shutil.rmtree(course.autograded(student, notebook).parent, ignore_errors=True)
        if student in app.collector_plugin_inst.late:
            path.with_name(LATE).touch()
    return app.collector_plugin_inst.left


def grade(course: Course, notebook: str, student: str) -> None:
    """Grade a hand-in, or keep the reason why it cannot be graded."""
    path = course.handed_in(student, notebook)
    path.with_name(NOT_GRADED).unlink(missing_ok=True)
    try:
        nbformat.validate(nbformat.read(path, as_version=4))
        why = run(course, Autograde, notebook, student)[1].replace("Kernel died", KERNEL_DIED)
    except FileNotFoundError:
        others = sorted(one.name for one in path.parent.iterdir() if one.name != LATE)
        why = f"{others[0]} was handed in: hand in the notebook itself, {path.name}"
    except Exception as error:  # of nbformat, one of many kinds
        why = f"no notebook that can be read ({type(error).__name__}): save it in JupyterLab, and hand that file in"
    if why:
        path.with_name(NOT_GRADED).write_text(why, encoding="utf-8")
    print(f"{notebook} {student}: {f'not graded: {why}' if why else 'graded'}", flush=True)


def write_feedback(course: Course, notebook: str) -> None:
    """Write a page for each hand-in; of one that was not graded it has the reason."""
    if any(course.autograded(student, notebook).exists() for student in course.submitted(notebook)):
        if failure := run(course, GenerateFeedback, notebook)[1]:
            print(f"{notebook} has not all of its feedback: {failure}")
    for student, why in course.not_graded(notebook).items():
        page = course.root / "feedback" / student / notebook / f"{notebook}.html"
        report.write_page(page, f"{notebook}: not graded", f"{why}.")


def main(course: Course, arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=Path, help="folder or zip file; default: what was collected before")
    parser.add_argument("--notebook", metavar="NAME", choices=course.released(), help="default: all handed in")
    parser.add_argument("--student", help="grade this one again")
    parser.add_argument("--students", type=Path, help="class list, see read_people; default: the one given last")
    parser.add_argument("--seed", type=int, help="grade all again, with other draws of the checks")
    asked = parser.parse_args(arguments)
    names = [asked.notebook] if asked.notebook else course.released()
    again = asked.seed is not None or (asked.notebook and not asked.submissions and not asked.student)
    try:
        if os.environ.get("ISOLATION") != "none":
            container.engine()
        if asked.students:
            read_people(asked.students)  # which refuses another table
            shutil.copy(asked.students, course.root / CLASS_LIST)
        if asked.seed is not None:
            (course.root / "seed.txt").write_text(f"{asked.seed}\n", encoding="utf-8")
        if asked.student and not any(asked.student in course.submitted(name) for name in names):
            parser.error(f"{asked.student} has handed in none of these notebooks: STUDENT is an id of grades.csv")
        if asked.submissions and not asked.notebook:
            parser.error("SUBMISSIONS are the files of one notebook: say which, NOTEBOOK=01_build_cyclegan for example")
        left = collect(course, asked.submissions, asked.notebook) if asked.submissions else {}
        for notebook in filter(course.submitted, names):
            for student in course.submitted(notebook):
                new = not course.autograded(student, notebook).exists()
                if student == asked.student or not asked.student and (again or new):
                    grade(course, notebook, student)
            write_feedback(course, notebook)
            print(f"The class: {report.write_class(course, notebook, left)}")
        for file, why in left.items():
            print(f"not graded: {file}: {why}")
        report.write_marks(course)
    except (RuntimeError, ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    print(f"Marks: {course.root / 'grades.csv'}; feedback: {course.root / 'feedback'}")


if __name__ == "__main__":
    main(Course())
