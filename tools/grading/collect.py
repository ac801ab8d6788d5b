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

import io
import re
import shutil
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import nbformat
import pandas as pd

CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<file>\d+)_.+")
MOODLE = re.compile(r"(?P<folder>(?P<name>[^_/]+)_(?P<user>\d+)_assignsubmission_[a-z]+_?).*")
VERSION = re.compile(r"(?:[-_ ]|\s*\()(\d{1,3})\)?$")  # "-2" by Canvas, " (1)" by browsers
LATE = "late.txt"  # beside a notebook that Canvas calls late
MOODLE_FOLDER = "moodle.txt"  # beside a notebook from Moodle: the name of its folder, to send feedback back
SKIPPED = ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "timestamp.txt", LATE, MOODLE_FOLDER)
NAMESAKES = "put the file of each into a folder with the id, or give their numbers in the class list"


@dataclass
class Submission:
    """One notebook file."""

    path: str  # in the export
    text: bytes
    notebook: str
    student: str
    user: str = ""  # number in Canvas or Moodle, "" for a file that a person named
    version: tuple[int, ...] = ()  # the larger, the later
    late: bool = False
    moodle_folder: str = ""


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file in a folder or zip file, and in zip files in it."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        name = "" if path == folder else path.relative_to(folder).as_posix()
        if path.suffix.lower() == ".zip":
            with tempfile.TemporaryDirectory() as unpacked:
                try:
                    shutil.unpack_archive(path, unpacked)
                except Exception:  # damaged, or with a password
                    yield name or path.name, b""
                yield from ((f"{name}/{inner}".strip("/"), content) for inner, content in files(Path(unpacked)))
        elif path.is_file() and not path.is_symlink():
            yield name, path.read_bytes()


def submission(name: str, content: bytes, course: dict[str, set[str]]) -> Submission:
    """What a file hands in.

    Raises:
        ValueError: nothing, with the reason.
    """
    path = PurePosixPath(name)
    if path.suffix.lower() != ".ipynb":
        raise ValueError("not a notebook")
    try:
        cells = nbformat.reads(content.decode("utf-8-sig"), as_version=4).cells
        marks = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in cells}
    except Exception as error:  # nbformat has many kinds
        raise ValueError(f"not a notebook that can be read ({type(error).__name__})") from error
    notebook = max(course, key=lambda one: len(course[one] & marks))
    if not course[notebook] & marks:
        raise ValueError("it has no exercise of this course: are its cells copied into a new notebook?")
    version = int(found[1]) if (found := VERSION.search(path.stem)) else 0
    for part in path.parts:  # the outermost: what a student uploads may have any name
        if match := CANVAS.fullmatch(part):
            student, late = identifier(match["name"]), bool(match["late"])
            return Submission(name, content, notebook, student, match["user"], (int(match["file"]), version), late)
        if match := MOODLE.fullmatch(part):
            student, user = identifier(match["name"]), f"p{match['user']}"
            return Submission(name, content, notebook, student, user, (version,), moodle_folder=match["folder"])
    folders = [part for part in path.parts[:-1] if not part.startswith(notebook) and not part.endswith(".zip")]
    if not folders or not identifier(folders[-1]):
        raise ValueError("it does not say whose it is: put it into a folder with the student's name")
    return Submission(name, content, notebook, identifier(folders[-1]), version=(version,))


def identifier(name: str) -> str:
    """A name as nbgrader can use it for a folder."""
    return re.sub(r"[^\w.@-]+", "_", unicodedata.normalize("NFC", name)).strip("_.")


def plain(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    return re.sub(r"[^\w]|_", "", unicodedata.normalize("NFKD", name).casefold())


def by_roster(submissions: list[Submission], people: list[dict[str, str]]) -> None:
    """Give students the ids of the class list, by which their number or else their name is known there."""
    ids: dict[str, set[str]] = defaultdict(set)
    for row in people:
        first, last = row.get("first_name", ""), row.get("last_name", "")
        for name in (row["id"], row.get("lms_user_id", ""), row.get("email", ""), first + last, last + first):
            ids[plain(name)].add(row["id"])
    ids.pop("", None)
    for one in submissions:
        named, numbered = ids.get(plain(one.student), set()), ids.get(one.user, set())
        fitting = named & numbered or named or numbered
        if len(fitting) == 1:
            one.student = next(iter(fitting))


def read_roster(roster: Path | None) -> list[dict[str, str]]:
    """The students of a course: id, first_name, last_name, email, lms_user_id, separated by commas, semicolons or tabs.

    Raises:
        ValueError: if the file has no column `id`, or is not in UTF-8.
    """
    if roster is None:
        return []
    try:
        text = roster.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{roster} is not in UTF-8: in Excel, save it as `CSV UTF-8`") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)  # Excel writes semicolons in much of Europe
    people = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    if "id" not in people:
        raise ValueError(f"{roster}: a column `id` is missing; it has {', '.join(people)}")
    return people[people["id"] != ""].drop_duplicates("id").to_dict("records")


def collect(
    folder: Path, course: dict[str, set[str]], submitted: Path, people: list[dict[str, str]]
) -> tuple[list[Submission], dict[str, str]]:
    """Put the last version of each student's notebooks into nbgrader's folder `submitted`.

    Args:
        course: the notebooks' names, each with the marks of its exercises.
        people: the class list.

    Returns:
        Those versions, and all other files, each with the reason why it is not graded.
    """
    found, left = [], {}
    for name, content in files(folder):
        if not any(part in SKIPPED for part in PurePosixPath(name).parts):
            try:
                found.append(submission(name, content, course))
            except ValueError as error:
                left[name] = str(error)
    by_roster(found, people)
    versions: dict[tuple[str, str], list[Submission]] = defaultdict(list)
    for one in sorted(found, key=lambda one: (not one.user, one.version, one.path)):
        versions[one.student, one.notebook].append(one)
    counted = []
    for (student, notebook), of_one in versions.items():
        *earlier, last = of_one
        if last.user and len({one.user for one in of_one}) > 1:
            left |= {one.path: f"several students are called {student}: {NAMESAKES}" for one in of_one}
            continue
        left |= {one.path: f"{last.path} counts" for one in earlier}
        put(last, submitted / student / notebook)
        counted.append(last)
    return counted, left


def put(one: Submission, target: Path) -> None:
    """Write a submission into its folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / f"{one.notebook}.ipynb").write_bytes(one.text)
    if one.late:
        (target / LATE).touch()
    if one.moodle_folder:
        (target / MOODLE_FOLDER).write_text(one.moodle_folder, encoding="utf-8")
