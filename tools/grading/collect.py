"""Find the notebooks in what a learning management system exports, and put them where nbgrader looks for them.

A folder or a zip file, with zip files in it if need be, may hold

    STUDENT/NOTEBOOK/NOTEBOOK.ipynb                                          nbgrader's own layout
    STUDENT/NOTEBOOK.ipynb
    smithjohn_12345_678901_NOTEBOOK-1.ipynb, smithjohn_LATE_12345_...        Canvas: number of the user, of the file
    John Smith_123456_assignsubmission_file_/NOTEBOOK.ipynb                  Moodle, with folders or without them

A notebook is known by its exercises, so its file may have any name: "NOTEBOOK (1).ipynb", "final-2.ipynb". Of several
versions by one student the last one counts.
"""

import csv
import io
import re
import shutil
import unicodedata
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

import nbformat

CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<file>\d+)_(?P<rest>.+)")
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<user>\d+)_assignsubmission_[a-z]+_?(?P<rest>.*)")
VERSION = re.compile(r"(?:[-_ ]|\s*\()(\d{1,3})\)?$")  # "-2" by Canvas, " (1)" by browsers
LATE = "late.txt"  # beside a notebook that Canvas calls late
MAX_BYTES = 50_000_000  # of one file
SKIPPED = ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "timestamp.txt", LATE)


@dataclass
class Submission:
    """One notebook file."""

    path: str  # in the export
    text: bytes = field(repr=False)
    notebook: str
    student: str
    number: str = ""  # of the user in Canvas; in Moodle with "p", another one for every assignment
    late: bool = False
    age: tuple = ()  # the larger, the later
    stamp: bytes = b""  # nbgrader's timestamp.txt

    @property
    def key(self) -> tuple[str, str]:
        return self.student, self.notebook


def files(folder: Path) -> Iterator[tuple[str, bytes, float]]:
    """Path, content and time of each file in a folder or zip file, and in zip files in it."""
    if folder.is_file():
        for path, content, time in opened(folder.name, folder.read_bytes(), 0):
            yield path.removeprefix(f"{folder.name}/"), content, time
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield from opened(path.relative_to(folder).as_posix(), path.read_bytes(), path.stat().st_mtime)


def opened(path: str, content: bytes, time: float) -> Iterator[tuple[str, bytes, float]]:
    """A file, or those in it if it is a zip file."""
    if not path.lower().endswith(".zip"):
        yield path, content, time
        return
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for one in archive.infolist():
                if not one.is_dir() and one.file_size <= MAX_BYTES:
                    yield from opened(f"{path}/{one.filename}", archive.read(one), written(one))
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, zlib.error):  # damaged, or with a password
        yield path, content, time


def written(file: zipfile.ZipInfo) -> float:
    """The time of a file in a zip file."""
    try:
        return datetime(*file.date_time).timestamp()
    except ValueError:
        return 0


def exercises_of(content: bytes) -> set[str]:
    """The marks of the exercises in a notebook file.

    Raises:
        ValueError: if it is not a notebook.
    """
    try:
        notebook = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
        return {cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in notebook.cells} - {""}
    except Exception as error:  # nbformat has many kinds
        raise ValueError(f"not a notebook that can be read ({type(error).__name__})") from error


def student_of(path: PurePosixPath, notebook: str) -> tuple[str, str, bool, tuple[int, int]]:
    """Student, number of the user, whether late, and version, from the name of a file; "" if it does not say."""
    version = int(found[1]) if (found := VERSION.search(path.stem)) else 0
    for part in (path.name, *(parent.name for parent in path.parents)):
        if match := CANVAS.fullmatch(part):
            return match["name"], match["user"], bool(match["late"]), (int(match["file"]), version)
        if match := MOODLE.fullmatch(part):
            return match["name"], f"p{match['user']}", False, (0, version)
    folders = [parent.name for parent in path.parents if parent.name and not parent.name.startswith(notebook)]
    zips = [name[:-4] for name in folders if name.lower().endswith(".zip")]
    before = re.findall(rf"^(.+?)[-_ ]+{re.escape(notebook)}", path.stem)
    names = [*(name for name in folders if not name.lower().endswith(".zip")), *before, *zips, ""]
    return names[0], "", False, (0, version)


def identifier(name: str) -> str:
    """A name as nbgrader can use it for a folder."""
    name = unicodedata.normalize("NFC", name)
    return re.sub(r"[^\w.@-]+", "_", name).strip("_.") or ""


def find(folder: Path, course: dict[str, set[str]]) -> tuple[list[Submission], dict[str, str]]:
    """All notebooks of the course in a folder or zip file, and the other files, each with the reason.

    Args:
        course: the notebooks' names, each with the marks of its exercises.
    """
    found, left, stamps = [], {}, {}
    for name, content, time in files(folder):
        path = PurePosixPath(name)
        if path.name == "timestamp.txt":
            stamps[path.parent] = content
        if any(part in SKIPPED for part in path.parts):
            continue
        if path.suffix.lower() != ".ipynb":
            left[name] = "not a notebook"
            continue
        try:
            marks = exercises_of(content)
        except ValueError as error:
            left[name] = str(error)
            continue
        notebook = max(course, key=lambda one: (len(course[one] & marks), one in name), default="")
        if not notebook or not course[notebook] & marks:
            left[name] = "it has no exercise of this course: are its cells copied into a new notebook?"
            continue
        student, number, late, age = student_of(path, notebook)
        if not identifier(student):
            left[name] = "it does not say whose it is: put it into a folder with the student's name"
            continue
        found.append(Submission(name, content, notebook, identifier(student), number, late, (age, time)))
    for one in found:
        one.stamp = stamps.get(PurePosixPath(one.path).parent, b"")
    return found, left


def by_roster(submissions: list[Submission], roster: Path | None) -> None:
    """Give students the ids of a roster, and different ones with one name different ids.

    The roster is a CSV file as `nbgrader db student import` has it: id, first_name, last_name, email, lms_user_id.
    """
    ids: dict[str, list[str]] = defaultdict(list)
    for row in read_roster(roster):
        first, last = row.get("first_name") or "", row.get("last_name") or ""
        for name in {row["id"], row.get("lms_user_id"), row.get("email"), f"{first} {last}", f"{last} {first}"}:
            ids[plain(name or "")].append(row["id"])
    numbers: dict[str, set[str]] = defaultdict(set)
    for one in submissions:
        numbers[one.student].add(one.number)
    for one in submissions:
        fitting = ids[plain(one.student)] or (ids[one.number] if one.number else [])
        if len(fitting) == 1:
            one.student = fitting[0]
        elif len(numbers[one.student]) > 1:
            one.student = f"{one.student}_{one.number}".strip("_")


def plain(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return re.sub(r"[^\w]|_", "", letters)


def read_roster(roster: Path | None) -> list[dict[str, str]]:
    """The students of a course.

    Raises:
        ValueError: if the file has no column `id`.
    """
    if roster is None:
        return []
    with open(roster, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and "id" not in rows[0]:
        raise ValueError(f"{roster}: a column `id` is missing; it has {', '.join(rows[0])}")
    return [row for row in rows if row["id"]]


def collect(
    folder: Path, course: dict[str, set[str]], submitted: Path, roster: Path | None = None
) -> tuple[list[Submission], dict[str, str]]:
    """Put the last version of each student's notebooks into nbgrader's folder `submitted`.

    Returns:
        Those versions, and all other files, each with the reason why it is not graded.
    """
    found, left = find(folder, course)
    by_roster(found, roster)
    latest: dict[tuple[str, str], Submission] = {}
    for one in sorted(found, key=lambda one: (one.age, one.path)):
        if one.key in latest:
            left[latest[one.key].path] = f"an earlier version of {one.path}"
        latest[one.key] = one
    for one in latest.values():
        target = submitted / one.student / one.notebook
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        (target / f"{one.notebook}.ipynb").write_bytes(one.text)
        if one.late:
            (target / LATE).touch()
        if one.stamp:
            (target / "timestamp.txt").write_bytes(one.stamp)
    return sorted(latest.values(), key=lambda one: one.key), left
