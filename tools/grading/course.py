"""What nbgrader knows about the course: its notebooks, the submissions, the points."""

import hashlib
import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_grade, is_solution
from traitlets.config import Config, PyFileConfigLoader

from tools.grading.collect import LATE, read_notebook
from tools.grading.execute import STOPPED, copies, exercise_of, is_wrong, name_of
from tools.grading.packages import ROOT

RIGHT, UNTOUCHED, UNREAD = "right", "not answered", "to be read"
UNWRITTEN = re.compile("is not (written yet|defined)")  # in the errors of an untouched answer


@dataclass
class Exercise:
    """An exercise as one student has answered it."""

    name: str
    most: float
    points: float | None  # None: a teacher has to read the answer
    message: str  # of the check, or of the answer's own error, or in words why there is none
    by_hand: bool  # a teacher gave the points or some of them
    comment: str  # of a teacher

    @property
    def note(self) -> str:
        """What a teacher should know: crashed, time, memory, ...; refused; marked by hand, or still to be read."""
        notes = []
        if self.message.startswith(STOPPED):
            notes.append(self.message.split(": ")[1])
        if is_refused(self.message):
            notes.append("refused")
        if self.points is None:
            notes.append(UNREAD)
        elif self.by_hand:
            notes.append("by hand")
        return "; ".join(f"{note}: {self.name}" for note in notes)


@dataclass
class Graded:
    """One student's submission of a notebook."""

    student: str
    exercises: dict[str, Exercise]
    notes: list[str]  # what a teacher should know


class Course:
    """A folder with nbgrader's gradebook, source, release, submitted, autograded and feedback."""

    def __init__(self, root: Path | None = None):
        self.config: Config = PyFileConfigLoader(str(ROOT / "nbgrader_config.py")).load_config()
        if root:
            self.config.CourseDirectory.root = str(root.resolve())
        self.directory = CourseDirectory(config=self.config)
        self.root = Path(self.directory.root)

    def gradebook(self) -> Gradebook:
        """nbgrader's gradebook, to be opened with `with`."""
        return Gradebook(self.directory.db_url, self.directory.course_id)

    def released(self) -> dict[str, list[NotebookNode]]:
        """The cells of each notebook that students get, by its name."""
        paths = sorted(self.root.glob("release/*/*.ipynb"))
        return {path.stem: nbformat.read(path, as_version=4).cells for path in paths}

    def cells(self, notebook: str) -> list[NotebookNode]:
        """The cells of a notebook that students get."""
        return nbformat.read(self.root / "release" / notebook / f"{notebook}.ipynb", as_version=4).cells

    def exercises(self, notebook: str) -> dict[str, float]:
        """The points of each exercise of a notebook, in its order."""
        return points_of(self.cells(notebook))

    def submitted(self, notebook: str) -> list[str]:
        """The students who handed a notebook in."""
        return sorted(path.parts[-3] for path in self.root.glob(f"submitted/*/{notebook}/{notebook}.ipynb"))

    def graded(self, notebook: str) -> list[Graded]:
        """The graded submissions of a notebook."""
        found = []
        with self.gradebook() as gradebook:
            submissions = {one.student.id: one for one in gradebook.notebook_submissions(notebook, notebook)}
            for student in self.submitted(notebook):
                path = Path(student, notebook, f"{notebook}.ipynb")
                if student not in submissions or not (self.root / "autograded" / path).exists():
                    continue
                cells = nbformat.read(self.root / "autograded" / path, as_version=4).cells
                exercises = {one.name: one for one in read(submissions[student], cells)}
                late = (self.root / "submitted" / path).with_name(LATE)
                notes = [f"late: {late.read_text(encoding='utf-8')}".removesuffix(": late")] if late.exists() else []
                notes += [one.note for one in exercises.values() if one.note]
                handed_in = copies(readable(self.root / "submitted" / path))
                notes += [f"copied or split, graded as one cell: {name}" for name in handed_in]
                earlier = self.run(notebook)["earlier"].get(student, {}).items()
                notes += [
                    f"{mark} points by hand were for an earlier text: {name}"
                    for name, mark in earlier
                    if name in exercises and not exercises[name].by_hand
                ]
                found.append(Graded(student, exercises, notes))
        return found

    def named(self, notebook: str | None) -> list[str]:
        """The notebooks to work on: all, or the one of this name; raises ValueError if there is none."""
        names = [*self.released()]
        if notebook in (None, *names):
            return [notebook] if notebook else names
        raise ValueError(f"{notebook} is no notebook of this course, which has {', '.join(names)}")

    def run(self, notebook: str) -> dict:
        """How a notebook was graded.

        | key | what |
        |---|---|
        | seed, sandbox | of the class |
        | not_graded | the reasons, by file or student |
        | graded | by student `fingerprint`, and a number for each answer's text |
        | earlier | by student and exercise the marks by hand that were for another text |
        | pages | by student a number for what the page of feedback says |
        """
        path = self.root / "runs.json"
        runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return dict(not_graded={}, graded={}, earlier={}, pages={}) | runs.get(notebook, {})

    def keep_run(self, notebook: str, run: dict) -> None:
        """Write down how a notebook was graded."""
        path = self.root / "runs.json"
        runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(runs | {notebook: run}, indent=1), encoding="utf-8")

    def fingerprint(self, notebook: str, student: str, seed: int) -> str:
        """A number for all that a submission's points by the checks depend on."""
        file = f"{notebook}/{notebook}.ipynb"
        paths = [self.root / "submitted" / student / file, self.root / "release" / file]
        paths += (ROOT / "labcourse" / "check").glob(f"notebook_{notebook.partition('_')[0]}.py")
        return number_of("".join(path.read_text(encoding="utf-8-sig", errors="replace") for path in paths) + str(seed))


def readable(path: Path) -> NotebookNode:
    """A notebook that was handed in; one without cells if nbgrader cannot read it."""
    with suppress(Exception):
        return read_notebook(path.read_bytes())
    return new_notebook()


def number_of(text: str) -> str:
    """A number that tells texts apart, in letters: Excel takes 12e45678 for 12 and many zeros."""
    return hashlib.sha256(text.encode()).hexdigest()[:8].translate(str.maketrans("0123456789", "ghijklmnop"))


def answers_of(cells: list[NotebookNode]) -> dict[str, str]:
    """The text of each exercise's answer, which may stand in several cells."""
    sources = defaultdict(list)
    for cell in filter(is_solution, cells):
        sources[exercise_of(cell)].append(cell.source)
    return {exercise: "\n".join(parts) for exercise, parts in sources.items()}


def is_refused(message: str) -> bool:
    """Whether a check's message says that an answer is not accepted, right or wrong."""
    return "the library's own" in message


def points_of(cells: list[NotebookNode]) -> dict[str, float]:
    """The points of each exercise among these cells."""
    return {exercise_of(cell): float(cell.metadata.nbgrader.points) for cell in cells if is_grade(cell)}


def read(submission: SubmittedNotebook, cells: list[NotebookNode]) -> list[Exercise]:
    """The exercises of a graded submission, which is in the gradebook and in a notebook."""
    grades = {grade.name: grade for grade in submission.grades}
    said = {comment.name: comment.manual_comment or "" for comment in submission.comments}
    untouched = {comment.name for comment in submission.comments if comment.auto_comment == "No response."}
    found = []
    for check in filter(is_grade, cells):
        name, grade = exercise_of(check), grades[name_of(check)]
        # Graded again, an answer with points by hand is marked in the gradebook as one to look at. Its points count.
        points = None if grade.needs_manual_grade and grade.manual_score is None else grade.score
        by_hand = grade.manual_score is not None or bool(grade.extra_credit)
        outputs = [output for cell in cells if exercise_of(cell) == name for output in cell.get("outputs", [])]
        errors = [f"{one.ename}: {one.evalue}" for one in outputs if one.output_type == "error"]
        telling = [
            error for kind in (f"{STOPPED}: ", "WrongAnswer: ", "") for error in errors if error.startswith(kind)
        ]
        wrong = check.cell_type != "code" or is_wrong(check)
        if wrong and name in untouched and (not telling or any(UNWRITTEN.search(one) for one in telling)):
            message = UNTOUCHED
        elif points is None:
            message = UNREAD
        elif wrong and telling:
            message = telling[0]
        else:
            message = f"{points:g} points by hand" if by_hand else RIGHT
        found.append(Exercise(name, float(grade.max_score), points, message, by_hand, said.get(name, "")))
    return found
