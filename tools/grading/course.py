"""What nbgrader knows about the course: its notebooks, the submissions, the points."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry, SubmittedNotebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import is_grade, is_solution
from traitlets.config import Config, PyFileConfigLoader

from tools.grading.collect import LATE
from tools.grading.execute import STOPPED, copies

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Exercise:
    """An exercise as one student has answered it."""

    name: str
    points: float | None = None  # None: a teacher has to read the answer
    stopped: str = ""  # crashed, time, memory, ...: why it did not run to its end
    untouched: bool = False
    message: str = ""  # of the check, or of the answer's own error
    by_hand: bool = False  # a teacher gave the points or some of them


@dataclass
class Graded:
    """One student's submission of a notebook."""

    student: str
    exercises: dict[str, Exercise] = field(default_factory=dict)
    late: bool = False
    copied: list[str] = field(default_factory=list)  # cells that were copied or split, and count as one


class Course:
    """A folder with nbgrader's gradebook, source, release, submitted, autograded and feedback."""

    def __init__(self, root: Path | None = None, config_file: Path = ROOT / "nbgrader_config.py"):
        self.config: Config = PyFileConfigLoader(str(config_file)).load_config()
        if root:
            self.config.CourseDirectory.root = str(root.resolve())
        self.directory = CourseDirectory(config=self.config)
        self.root = Path(self.directory.root)

    @contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        """nbgrader's gradebook, opened."""
        with Gradebook(self.directory.db_url, self.directory.course_id) as gradebook:
            yield gradebook

    def released(self) -> dict[str, list[NotebookNode]]:
        """The marked cells of each notebook that students get, by its name."""
        paths = sorted(self.root.glob(f"{self.directory.release_directory}/*/*.ipynb"))
        read = {path.stem: nbformat.read(path, as_version=4).cells for path in paths if path.stem == path.parent.name}
        return {name: [cell for cell in cells if "nbgrader" in cell.metadata] for name, cells in read.items()}

    def exercises(self, notebook: str) -> dict[str, float]:
        """The points of each exercise of a notebook, in its order. Its name is that of the check without "_check"."""
        path = self.root / self.directory.release_directory / notebook / f"{notebook}.ipynb"
        return points_of(nbformat.read(path, as_version=4).cells)

    def submitted(self, notebook: str) -> list[str]:
        """The students who handed a notebook in."""
        return sorted(path.parts[-3] for path in self.root.glob(f"submitted/*/{notebook}/{notebook}.ipynb"))

    def feedback(self, student: str, notebook: str) -> Path:
        """The page for a student about a notebook."""
        return self.root / "feedback" / student / notebook / f"{notebook}.html"

    def graded(self, notebook: str, students: list[str] | None = None) -> list[Graded]:
        """The graded submissions of a notebook, those of all students by default."""
        found, names = [], self.exercises(notebook)
        with self.gradebook() as gradebook:
            for student in self.submitted(notebook) if students is None else students:
                path = self.root / "autograded" / student / notebook / f"{notebook}.ipynb"
                try:
                    submission = gradebook.find_submission_notebook(notebook, notebook, student)
                except MissingEntry:
                    continue
                if path.exists():
                    late = (path.parent / LATE).exists() or (submission.assignment.total_seconds_late or 0) > 0
                    cells = nbformat.read(path, as_version=4).cells
                    handed_in = nbformat.read(self.root / "submitted" / path.relative_to(self.root / "autograded"), 4)
                    found.append(Graded(student, read(submission, cells, names), late, [*copies(handed_in)]))
        return found


def points_of(cells: list[NotebookNode]) -> dict[str, float]:
    """The points of each exercise among these cells."""
    marks = (cell.metadata.nbgrader for cell in cells if is_grade(cell))
    return {one.grade_id.removesuffix("_check"): float(one.points) for one in marks}


def read(submission: SubmittedNotebook, cells: list[NotebookNode], names: dict[str, float]) -> dict[str, Exercise]:
    """The exercises of a graded submission, which is in the gradebook and in a notebook."""
    found = {name: Exercise(name) for name in names}
    for grade in submission.grades:
        if not (one := found.get(grade.name.removesuffix("_check"))):
            continue
        one.by_hand = grade.manual_score is not None or bool(grade.extra_credit)
        # Graded again, an answer with points by hand is marked in the gradebook as one to look at. Its points count.
        if grade.manual_score is not None or not grade.needs_manual_grade:
            one.points = grade.score
    untouched = {comment.name for comment in submission.comments if comment.auto_comment == "No response."}
    for cell in cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("_check")
        if name not in found:
            continue
        one = found[name]
        one.untouched |= name in untouched and is_solution(cell)
        for output in cell.get("outputs", []):
            if output.output_type == "error" and output.ename == STOPPED:
                one.stopped = output.evalue.partition(":")[0]
            elif output.output_type == "error" and (not one.message or output.ename == "WrongAnswer"):
                one.message = f"{output.ename}: {output.evalue}"
    return found
