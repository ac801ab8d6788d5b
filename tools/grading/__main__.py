"""`make grade`: has nbgrader grade what `nbgrader zip_collect` has collected, and writes what teacher and students need.

    python -m tools.grading                               # all notebooks that were handed in
    python -m tools.grading 01_build_cyclegan --seed 5    # this one, with the same draws as before

Writes into assignments/: autograded/, feedback/, grades.csv with the marks of all notebooks so far, and NOTEBOOK.html,
the report on the class. Students' code runs as you: run it in the container of `make grading-image`.
"""

import argparse
import os
import secrets
from contextlib import suppress
from pathlib import Path

from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.converters.base import NbGraderException

from tools.grading import report
from tools.grading.course import Course


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", help="default: all that were handed in")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of what the checks draw")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    asked = parser.parse_args(arguments)
    course = Course(asked.course)
    os.environ["LABKIT_CHECK_SEED"] = str(asked.seed)
    print(f"The checks draw from SEED={asked.seed}")
    for notebook in asked.notebooks or [one for one in course.released() if course.submitted(one)]:
        course.directory.assignment_id = notebook
        for converter in (Autograde, GenerateFeedback):
            app = converter(coursedir=course.directory, config=course.config)
            app.force = True
            with suppress(NbGraderException):  # it has said of whom; the others are graded
                app.start()
        report.write_class(course, notebook, course.root / f"{notebook}.html")
    report.write_marks(course, course.root / "grades.csv")


if __name__ == "__main__":
    main()
