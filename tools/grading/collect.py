"""Whose the files are that a platform exports. nbgrader's `zip_collect` asks `Platforms`, and does the rest."""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

from nbgrader.plugins import FileNameCollectorPlugin

from tools.grading.course import Course
from tools.grading.people import identifier

# What a platform calls a student's file, or the folder in which it lies. The class list knows the number, too.
PLATFORMS = (
    r"(?P<name>[^\s_A-Z-]+)(?P<late>_LATE)?_(?P<number>[1-9]\d*)_[1-9]\d*_.+",  # Canvas
    r"(?P<late>LATE_)?(?P<name>anon_[^_]+)_\d+_.+",  # Canvas, anonymous
    r"(?P<name>[^_]+)_(?P<number>\d+)_assignsubmission_[a-z]+.*",  # Moodle
    r".+_(?P<name>[^_]+)_attempt_[\d-]+_.+",  # Blackboard
    r"\d+-\d+ - (?P<name>.+?) - .+",  # Brightspace
    r"(?P<name>.+?) - .+\.ipynb",  # Google Classroom
)
OTHER = "its name is that of another notebook"
WHOSE = "it does not say whose it is: put it into a folder with the student's id"
SEVERAL = "another file of this student counts"
NAMESAKES = "several students are called so: give the class list, or put each file into a folder with the student's id"


class Platforms(FileNameCollectorPlugin):
    """Which file counts for which student: of several the last. `left` has the others with the reason."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.left, self.late, self.counting = dict[str, str](), set[str](), dict[Path, str]()

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        """What nbgrader asks of each of the files that it has copied into a folder: student and notebook, or None."""
        course, notebook = Course(Path(self.parent.coursedir.root)), self.parent.coursedir.assignment_id
        if not self.counting:
            self.choose(course.root / "downloaded" / notebook / "extracted", course, notebook)
        student = self.counting.get(Path(submitted_file))
        return {"student_id": student, "file_id": notebook} if student else None

    def choose(self, folder: Path, course: Course, notebook: str) -> None:
        """Fill `counting`, `left`, and `late`, the students whose files Canvas calls late."""
        ids, others = ids_by_name(course), {*course.released()} - {notebook}
        found = defaultdict(list)
        for path in sorted(one for one in folder.rglob("*") if one.is_file() and one.name != "timestamp.txt"):
            student, told = student_of(PurePosixPath(path.relative_to(folder).as_posix()), ids)
            if not student or any(name in path.name for name in others):
                self.left[str(path.relative_to(folder))] = OTHER if student else WHOSE
            else:
                found[student, path.suffix].append((path, told))
        for (student, _), files in found.items():
            namesakes = len({told.get("number") for _, told in files}) > 1
            for path, _ in files if namesakes else files[:-1]:
                self.left[str(path.relative_to(folder))] = NAMESAKES if namesakes else SEVERAL
            if not namesakes:
                self.counting[files[-1][0]] = student
                self.late |= {student for _, told in files[-1:] if told.get("late")}


def student_of(path: PurePosixPath, ids: dict[str, set[str]]) -> tuple[str, dict[str, str]]:
    """The student whom the first part of a path names, "" if none, and what the platform tells there.

    What lies inside of a student's folder has names that the student gave.
    """
    match = next(filter(None, (re.fullmatch(form, path.parts[0]) for form in PLATFORMS)), None)
    told = match.groupdict() if match else {"name": path.parts[0] if len(path.parts) > 1 else ""}
    named, numbered = (ids.get(simplified(told.get(key) or ""), set()) for key in ("name", "number"))
    fitting = named & numbered or numbered or named
    return next(iter(fitting)) if len(fitting) == 1 else identifier(told["name"]), told


def simplified(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    return re.sub(r"[^\w]|_", "", unicodedata.normalize("NFKD", name).casefold())


def ids_by_name(course: Course) -> dict[str, set[str]]:
    """The ids of the class list by each name and number that a platform may know a student by."""
    ids: dict[str, set[str]] = defaultdict(set)
    for row in course.people().to_dict("records"):
        first, last = row.get("first_name", ""), row.get("last_name", "")
        for name in (row["id"], row.get("number", ""), row.get("email", ""), first + last, last + first):
            ids[simplified(name)].add(row["id"])
    return {name: those for name, those in ids.items() if name}
