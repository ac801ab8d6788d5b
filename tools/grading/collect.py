"""Find the notebooks in what a learning management system exports, and put them where nbgrader looks for them.

A folder or a zip file, with zip files in it if need be, may hold

    STUDENT/NOTEBOOK/NOTEBOOK.ipynb                                          nbgrader's own layout
    STUDENT/NOTEBOOK.ipynb
    smithjohn_12345_678901_NOTEBOOK-1.ipynb, smithjohn_LATE_12345_...        Canvas: number of the user, of the file
    John Smith_123456_assignsubmission_file_/NOTEBOOK.ipynb                  Moodle, with folders or without them

A notebook is known by its exercises, so its file may have any name: "NOTEBOOK (1).ipynb", "final-2.ipynb". Of several
versions by one student the last one counts, but a file that you put in by hand, under the student's name, counts over
all that Canvas and Moodle named.
"""

import csv
import io
import os
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
MOODLE_FOLDER = "moodle.txt"  # beside a notebook from Moodle: the name of its folder, to send feedback back
STUDENTS_ZIP = re.compile(r"(_\d+_|_assignsubmission_).*\.zip/")  # the times in it are of the student's computer
UNKNOWN_TIME = datetime(1981, 1, 1).timestamp()
MAX_BYTES = 50_000_000  # of one file
SKIPPED = ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "timestamp.txt", LATE, MOODLE_FOLDER)


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
    time: float = 0  # of the file as Canvas or Moodle had it, 0 if unknown

    @property
    def key(self) -> tuple[str, str]:
        return self.student, self.notebook

    @property
    def by_hand(self) -> bool:
        """Whether a person named the file or its folder, not Canvas or Moodle."""
        return not self.number

    @property
    def moodle_folder(self) -> str:
        """The folder in Moodle's export, "" if it is not from Moodle."""
        parts = (MOODLE.fullmatch(part) for part in PurePosixPath(self.path).parts)
        return next((part[0].removesuffix(part["rest"]) for part in parts if part), "")

    @property
    def download(self) -> str:
        """The folder or zip file in which Moodle's folders lie: there each participant has one number."""
        return self.path.partition(self.moodle_folder)[0] if self.moodle_folder else ""


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
    found, left = [], {}
    for name, content, time in files(folder):
        path = PurePosixPath(name)
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
        age, time = (not number, age, time), 0 if STUDENTS_ZIP.search(name) else time
        found.append(Submission(name, content, notebook, identifier(student), number, late, age, time))
    return found, left


def by_roster(submissions: list[Submission], roster: Path | None) -> None:
    """Give students the ids of a roster, and different ones with one name different ids.

    The roster is a CSV file as `nbgrader db student import` has it: id, first_name, last_name, email, lms_user_id.
    """
    names: dict[str, set[str]] = defaultdict(set)
    numbers: dict[str, set[str]] = defaultdict(set)
    for row in read_roster(roster):
        first, last = row.get("first_name") or "", row.get("last_name") or ""
        for name in (row["id"], row.get("lms_user_id"), row.get("email"), f"{first} {last}", f"{last} {first}"):
            names[plain(name or "")].add(row["id"])
        numbers[row.get("lms_user_id") or ""].add(row["id"])
    names.pop("", None)
    numbers.pop("", None)
    shared = namesakes(submissions)
    for one in submissions:
        named, numbered = names.get(plain(one.student), set()), numbers.get(one.number, set())
        fitting = named & numbered or named or numbered
        if len(fitting) == 1:
            one.student = next(iter(fitting))
        elif one.student in shared:
            one.student = f"{one.student}_{one.number}".strip("_")


def namesakes(submissions: list[Submission]) -> set[str]:
    """The names that several students have.

    Canvas has one number for a user. Moodle has another one in each assignment, so two numbers are two students only if
    both handed in the same notebook in one download.
    """
    numbers: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for one in submissions:
        if one.number:
            numbers[(one.student, one.notebook, one.download) if one.moodle_folder else (one.student,)].add(one.number)
    return {name for (name, *_), found in numbers.items() if len(found) > 1}


def plain(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    letters = unicodedata.normalize("NFKD", name).casefold()
    return re.sub(r"[^\w]|_", "", letters)


def read_roster(roster: Path | None) -> list[dict[str, str]]:
    """The students of a course. Their file's separator is a comma, a semicolon as in much of Europe, or a tab.

    Raises:
        ValueError: if the file has no column `id`, or is not in UTF-8.
    """
    if roster is None:
        return []
    try:
        text = roster.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{roster} is not in UTF-8: in Excel, save it as `CSV UTF-8`") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = list(csv.DictReader(io.StringIO(text), delimiter=separator))
    if rows and "id" not in rows[0]:
        raise ValueError(f"{roster}: a column `id` is missing; it has {', '.join(rows[0])}")
    return [row for row in rows if row["id"]]


def collect(
    folder: Path, course: dict[str, set[str]], submitted: Path, roster: Path | None = None
) -> tuple[list[Submission], dict[str, str]]:
    """Put the last version of each student's notebooks into nbgrader's folder `submitted`.

    Returns:
        Those versions, and all other files, each with the reason why it is not graded. One is that an earlier run
        has collected a newer version.
    """
    found, left = find(folder, course)
    by_roster(found, roster)
    latest: dict[tuple[str, str], Submission] = {}
    for one in sorted(found, key=lambda one: (one.age, one.path)):
        if before := latest.get(one.key):
            put_in = one.by_hand and not before.by_hand
            left[before.path] = f"{one.path} counts, put in by hand" if put_in else f"an earlier version of {one.path}"
        latest[one.key] = one
    for key, one in list(latest.items()):
        target = submitted / one.student / one.notebook
        if older(one, target / f"{one.notebook}.ipynb"):
            left[one.path] = f"older than what was collected before; to grade it, remove {target}"
            del latest[key]
        else:
            put(one, target)
    return sorted(latest.values(), key=lambda one: one.key), left


def older(one: Submission, collected: Path) -> bool:
    """Whether a notebook from Canvas or Moodle is older than another version that an earlier run collected.

    Only known times count: a zip file without them says 1980.
    """
    if one.by_hand or one.time < UNKNOWN_TIME or not collected.exists():
        return False
    return one.time < collected.stat().st_mtime and one.text != collected.read_bytes()


def put(one: Submission, target: Path) -> None:
    """Write a submission into its folder, with the time of its file."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    path = target / f"{one.notebook}.ipynb"
    path.write_bytes(one.text)
    os.utime(path, (one.time, one.time))
    if one.late:
        (target / LATE).touch()
    if one.moodle_folder:
        (target / MOODLE_FOLDER).write_text(one.moodle_folder, encoding="utf-8")
