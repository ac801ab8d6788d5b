"""What nbgrader knows about the course: its notebooks, submissions and points; and what a page of feedback shows."""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
from nbformat import NotebookNode
from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade
from traitlets.config import Config, PyFileConfigLoader

from tools.assignments import ROOT
from tools.grading.execute import STOPPED, error_of, exercise_of, name_of
from tools.grading.people import CLASS_LIST, read_people

RIGHT, UNTOUCHED, UNREAD = "right", "not answered", "to be read"
LATE, NOT_GRADED = "late.txt", "not_graded.txt"  # beside a notebook whose file Canvas calls late; with the reason
UNWRITTEN = re.compile("is not (written yet|defined)|^NotImplementedError")  # in the errors of an untouched answer


@dataclass
class Exercise:
    """An exercise as one student has answered it."""

    name: str
    most: float
    points: float | None  # None: a teacher has to read the answer
    message: str  # of the check, or of the answer's own error, or in words why there is none
    by_hand: bool  # a teacher gave the points or some of them

    @property
    def note(self) -> str:
        """What a teacher should know: crashed, time, memory, ...; marked by hand, or still to be read."""
        notes = {
            "out of time": self.message.startswith(STOPPED),
            UNREAD: self.points is None,
            "by hand": self.by_hand,
        }
        return "; ".join(f"{note}: {self.name}" for note, holds in notes.items() if holds)


class Course:
    """A folder with nbgrader's gradebook, source, release, submitted, autograded and feedback."""

    def __init__(self, root: Path | None = None):
        self.config: Config = PyFileConfigLoader(str(ROOT / "nbgrader_config.py")).load_config()
        if root:
            self.config.CourseDirectory.root = str(root.resolve())
        self.directory = CourseDirectory(config=self.config)
        self.root = Path(self.directory.root)

    def released(self) -> list[str]:
        """The names of the notebooks that students get."""
        return sorted(path.stem for path in self.root.glob("release/*/*.ipynb"))

    def exercises(self, notebook: str) -> dict[str, float]:
        """The points of each exercise of a notebook, in its order."""
        return points_of(nbformat.read(self.root / "release" / notebook / f"{notebook}.ipynb", as_version=4).cells)

    def submitted(self, notebook: str) -> list[str]:
        """The students who handed a notebook in, or another file in its place."""
        return sorted(path.parts[-2] for path in self.root.glob(f"submitted/*/{notebook}"))

    def people(self) -> pd.DataFrame:
        """The class list that was given last, see `read_people`; without rows if there is none."""
        path = self.root / CLASS_LIST
        return read_people(path) if path.exists() else pd.DataFrame(columns=["id"])

    def handed_in(self, student: str, notebook: str) -> Path:
        """The file that a student handed in as this notebook."""
        return self.root / "submitted" / student / notebook / f"{notebook}.ipynb"

    def autograded(self, student: str, notebook: str) -> Path:
        """The graded notebook."""
        return self.root / "autograded" / student / notebook / f"{notebook}.ipynb"

    def not_graded(self, notebook: str) -> dict[str, str]:
        """The students whose notebook could not be graded, with the reason."""
        files = self.root.glob(f"submitted/*/{notebook}/{NOT_GRADED}")
        return {path.parts[-3]: path.read_text(encoding="utf-8") for path in files}

    def graded(self, notebook: str) -> dict[str, dict[str, Exercise]]:
        """The exercises of each student whose submission of a notebook is graded, by their names."""
        with Gradebook(self.directory.db_url, self.directory.course_id) as gradebook:
            submissions = {one.student.id: one for one in gradebook.notebook_submissions(notebook, notebook)}
            paths = {student: self.autograded(student, notebook) for student in self.submitted(notebook)}
            return {
                student: {one.name: one for one in read(submissions[student], nbformat.read(path, as_version=4).cells)}
                for student, path in paths.items()
                if student in submissions and path.exists()
            }


def points_of(cells: list[NotebookNode]) -> dict[str, float]:
    """The points of each exercise among these cells."""
    return {exercise_of(cell): float(cell.metadata.nbgrader.points) for cell in cells if is_grade(cell)}


def read(submission: SubmittedNotebook, cells: list[NotebookNode]) -> list[Exercise]:
    """The exercises of a graded submission, which is in the gradebook and in a notebook."""
    grades = {grade.name: grade for grade in submission.grades}
    untouched = {comment.name for comment in submission.comments if comment.auto_comment == "No response."}
    found = []
    for check in filter(is_grade, cells):
        name, grade = exercise_of(check), grades[name_of(check)]
        # Graded again, an answer with points by hand is marked in the gradebook as one to look at. Its points count.
        points = None if grade.needs_manual_grade and grade.manual_score is None else grade.score
        by_hand = grade.manual_score is not None or bool(grade.extra_credit)
        outputs = [output for cell in cells if exercise_of(cell) == name for output in cell.get("outputs", [])]
        errors = [f"{one.ename}: {one.evalue}" for one in outputs if one.output_type == "error"]
        kinds = (f"{STOPPED}: ", "WrongAnswer: ", "")  # those that tell most come first
        telling = [error for kind in kinds for error in errors if error.startswith(kind)]
        wrong = check.cell_type != "code" or bool(error_of(check))
        if wrong and name in untouched and (not telling or any(UNWRITTEN.search(one) for one in telling)):
            message = UNTOUCHED
        elif points is None:
            message = UNREAD
        elif wrong and telling:
            message = telling[0]
        else:
            message = f"{points:g} points by hand" if by_hand else RIGHT
        found.append(Exercise(name, float(grade.max_score), points, message, by_hand))
    return found


class ShowResults(NbGraderPreprocessor):
    """Keeps only the exercises in a page of feedback, and collects the results for its top."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The answers and checks; `resources["results"]` has the exercises."""
        nb.cells = [cell for cell in nb.cells if exercise_of(cell)]
        names = resources["nbgrader"]
        with Gradebook(names["db_url"]) as gradebook:
            submission = gradebook.find_submission_notebook(names["notebook"], names["assignment"], names["student"])
            resources["results"] = read(submission, nb.cells)
        return nb, resources
