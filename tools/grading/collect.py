"""Find the notebooks in what a learning management system exports, and put them where nbgrader looks for them.

A folder or a zip file, with zip files in it if need be, may hold

    STUDENT/NOTEBOOK/NOTEBOOK.ipynb                                          nbgrader's own layout
    STUDENT/NOTEBOOK.ipynb
    smithjohn_12345_678901_NOTEBOOK-1.ipynb, smithjohn_LATE_12345_...        Canvas: number of the user, of the file
    anon_aB3dE_678901_NOTEBOOK.ipynb, LATE_anon_aB3dE_...                    the same, anonymous
    John Smith_123456_assignsubmission_file_/NOTEBOOK.ipynb                  Moodle, with folders or without them
    Week 2_jsmith_attempt_2027-03-01-22-12-05_NOTEBOOK.ipynb                 Blackboard
    123-456 - John Smith - Mar 1, 2027 1012 PM/NOTEBOOK.ipynb                Brightspace, with folders or without them
    week2-jsmith/student/NOTEBOOK.ipynb                                      GitHub Classroom
    John Smith/Week 2/Version 1/NOTEBOOK.ipynb                               Teams
    Week 2/John Smith - NOTEBOOK.ipynb                                       Google Classroom, Colab
    submission_123456/NOTEBOOK.ipynb                                         Gradescope

With a class list, the student of the other layouts is the outermost folder, or else the beginning of the file's
name, that is in the list. Without one it is the outermost folder in which the paths differ.

A notebook is known by its exercises, so its file may have any name: "NOTEBOOK (1).ipynb", "final-2.ipynb.txt". Of
several versions by one student the last one counts, but a file that you put in by hand, under the student's name,
counts over all that a platform named.
"""

import contextlib
import io
import itertools
import os
import re
import shutil
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO

import nbformat
import pandas as pd

# What platforms call a file or its folder: `when` tells versions apart, and feedback goes to a name that begins with
# `back`.
CANVAS = re.compile(r"(?P<back>(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<when>\d+)_).+")
ANONYMOUS = re.compile(r"(?P<back>(?P<late>LATE_)?(?P<name>anon_[^_]+)_(?P<when>\d+)_).+")
MOODLE = re.compile(r"(?P<back>(?P<name>[^_/]+)_(?P<user>\d+)_assignsubmission_[a-z]+_?).*")
BLACKBOARD = re.compile(r".+_(?P<name>[^_]+)_attempt_(?P<when>[\d-]+)_.+")
BRIGHTSPACE = re.compile(r"(?P<user>\d+)-\d+ - (?P<name>.+?) - (?P<when>\w+ \d+, \d+ \d+ [AP]M)( - .+)?")
PLATFORMS = (CANVAS, ANONYMOUS, MOODLE, BLACKBOARD, BRIGHTSPACE)
VERSION = re.compile(r"(?:[-_ ]|\s*\()(\d{1,3})\)?$")  # "-2" by Canvas, " (1)" by browsers
LATE = "late.txt"  # beside a notebook that the platform calls late: by how much, where it says so
BACK = "back.txt"  # beside a notebook from Canvas or Moodle: the name of its feedback in the zip file that goes back
NOTEBOOKS = (".ipynb", ".json", ".ipynb.txt")  # ends of names: browsers add some
KEPT_COPY = "_before_update_"  # in the name of an older copy, which `make student` keeps beside an updated notebook
LIMIT = 20_000_000  # bytes of a notebook: a zip file of 5 MB may hold gigabytes
DEPTH = 3  # zip files within zip files
# Folders that layouts have in common, and that nobody is called.
COMMON = re.compile(
    r"(version|week|part|assignment|student|notebook|submission|homework|release|course)s?[ _-]?\d{0,2}", re.IGNORECASE
)
SKIPPED = ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "timestamp.txt", LATE, BACK)
NAMESAKES = "put the file of each into a folder with the id, or give their numbers in the class list"


@dataclass
class Submission:
    """One notebook file."""

    path: str  # in the export
    text: bytes
    notebook: str
    student: str
    user: str = ""  # what the platform calls the student, "" for a file that a person named
    version: tuple[int, ...] = ()  # the larger, the later
    late: str = ""
    back: str = ""
    places: list[str] = field(default_factory=list)  # folders, one of which may be the student
    stem: str = ""  # the file's name


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file in a folder or zip file, and in zip files in it. Only notebooks have a content."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        name = "" if path == folder else path.relative_to(folder).as_posix()
        if path.suffix.lower() == ".zip":
            yield from in_archive(name, path)
        elif path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                yield name, content_of(name, file)


def in_archive(name: str, archive: Path | io.BytesIO, depth: int = 1) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file in a zip file that is called `name`. Nothing is unpacked onto the disk."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for info in sorted(opened.infolist(), key=lambda info: info.filename):
                inner = f"{name}/{info.filename}".strip("/")
                if info.is_dir():
                    continue
                with opened.open(info) as file:
                    if inner.lower().endswith(".zip") and depth < DEPTH:
                        yield from in_archive(inner, io.BytesIO(file.read(LIMIT)), depth + 1)
                    else:
                        yield inner, content_of(inner, file)
    except Exception:  # damaged, or with a password
        yield name or "the zip file", b""


def content_of(name: str, file: IO[bytes]) -> bytes:
    """At most LIMIT + 1 bytes of a notebook, and none of another file."""
    return file.read(LIMIT + 1) if name.lower().endswith(NOTEBOOKS) else b""


def submission(name: str, content: bytes, course: dict[str, set[str]]) -> Submission:
    """What a file hands in.

    Raises:
        ValueError: nothing, with the reason.
    """
    path = PurePosixPath(name)
    if not name.lower().endswith(NOTEBOOKS):
        raise ValueError("not a notebook")
    if KEPT_COPY in path.stem:
        raise ValueError("an older copy, kept when the notebook was updated")
    if len(content) > LIMIT:
        raise ValueError(f"larger than {LIMIT // 1_000_000} MB: no notebook of this course")
    try:
        cells = nbformat.reads(content.decode("utf-8-sig"), as_version=4).cells
        marks = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in cells}
    except Exception as error:  # nbformat has many kinds
        raise ValueError(f"not a notebook that can be read ({type(error).__name__})") from error
    notebook = max(course, key=lambda one: len(course[one] & marks))
    if not course[notebook] & marks:
        raise ValueError("it has no exercise of this course: are its cells copied into a new notebook?")
    stem = path.stem.removesuffix(".ipynb")
    version = int(found[1]) if (found := VERSION.search(stem)) else 0
    for part, platform in itertools.product(path.parts, PLATFORMS):  # the outermost: students name what they upload
        if match := platform.fullmatch(part):
            said = match.groupdict()
            student, user = identifier(said["name"]), said.get("user", said["name"])
            back = f"{said['back']}{notebook}.html" if "back" in said else ""
            if platform is MOODLE:  # its numbers are of participants, and its names of folders
                user, back = f"p{user}", f"{said['back']}/{notebook}.html"
            order = (*moment(said.get("when", "")), version)
            return Submission(name, content, notebook, student, user, order, "late" if said.get("late") else "", back)
    if path.parts[-2:-1] == (notebook,) and len(path.parts) > 2:  # nbgrader's own layout
        return Submission(name, content, notebook, identifier(path.parts[-3]), version=(version,))
    named = [part.removesuffix(".zip") for part in path.parts[:-1]]
    folders = [part for part in named if not part.startswith(notebook) and not COMMON.fullmatch(part)]
    places = [each for each in map(identifier, folders) if each]
    return Submission(name, content, notebook, "", version=(version,), places=places, stem=stem)


def moment(text: str) -> tuple[int, ...]:
    """Numbers that grow with time: of "2027-03-01-22-12-05", the number of a file, or "Mar 1, 2027 1012 PM"."""
    with contextlib.suppress(ValueError):
        text = f"{datetime.strptime(text, '%b %d, %Y %I%M %p'):%Y-%m-%d-%H-%M}"
    return tuple(map(int, re.findall(r"\d+", text)))


def identifier(name: str) -> str:
    """A name as nbgrader can use it for a folder."""
    return re.sub(r"[^\w.@-]+", "_", unicodedata.normalize("NFC", name)).strip("_.")


def plain(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    return re.sub(r"[^\w]|_", "", unicodedata.normalize("NFKD", name).casefold())


NOT_LISTED = "its path names nobody of the class list: put it into a folder with the student's id"
WHOSE = "it does not say whose it is: put it into a folder with the student's name"


def by_places(submissions: list[Submission], people: list[dict[str, str]]) -> dict[str, str]:
    """Name the students whom neither Canvas nor Moodle names, by folders or by the beginning of a file's name.

    Returns:
        The files that say no name, each with the reason.
    """
    unnamed = [one for one in submissions if not one.student]
    if people:
        known = ids_of(people)
        for one in unnamed:
            one.student = listed(one, known)
        return {one.path: NOT_LISTED for one in unnamed if not one.student}
    # The outermost folder in which the paths differ; if there is one path only, the innermost.
    shared = len(os.path.commonprefix([one.places for one in unnamed]))
    for one in unnamed:
        if one.places:
            one.student = one.places[min(shared, *(len(each.places) - 1 for each in unnamed if each.places))]
        elif " - " in one.stem:  # as Google names copies
            one.student = identifier(one.stem.partition(" - ")[0])
    return {one.path: WHOSE for one in unnamed if not one.student}


def listed(one: Submission, known: dict[str, set[str]]) -> str:
    """The id of the student in the class list whom a folder, its end, or the beginning of the file's name names."""
    folders = [part for place in one.places for part in (place, re.split(r"[-_]", place)[-1])]  # week2-jsmith
    starts = [one.stem[:end] for end in range(len(one.stem), 2, -1) if not one.stem[end : end + 1].isalpha()]
    return next((next(iter(ids)) for name in folders + starts if len(ids := known.get(plain(name), ())) == 1), "")


def ids_of(people: list[dict[str, str]]) -> dict[str, set[str]]:
    """The ids of the class list, by each of their numbers and names."""
    ids: dict[str, set[str]] = defaultdict(set)
    for row in people:
        first, last = row.get("first_name", ""), row.get("last_name", "")
        for name in (row["id"], row.get("lms_user_id", ""), row.get("email", ""), first + last, last + first):
            ids[plain(name)].add(row["id"])
    ids.pop("", None)
    return ids


def by_roster(submissions: list[Submission], people: list[dict[str, str]]) -> None:
    """Give students the ids of the class list, by which their number or else their name is known there."""
    ids = ids_of(people)
    for one in submissions:
        named, numbered = ids.get(plain(one.student), set()), ids.get(one.user, set())
        fitting = named & numbered or named or numbered
        if len(fitting) == 1:
            one.student = next(iter(fitting))


def read_table(path: Path, *keys: str) -> list[dict[str, str]]:
    """The rows of a CSV file, separated by commas, semicolons or tabs, that have something in the first of the columns.

    Raises:
        ValueError: if the file has no such column, or is not in UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8: in Excel, save it as `CSV UTF-8`") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)  # Excel writes semicolons in much of Europe
    rows = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False)
    key = next((one for one in keys if one in rows), None)
    if key is None:
        raise ValueError(f"{path}: a column `{keys[0]}` is missing; it has {', '.join(rows)}")
    return rows[rows[key] != ""].drop_duplicates(key).to_dict("records")


def read_roster(roster: Path | None) -> list[dict[str, str]]:
    """The students of a course: id, first_name, last_name, email, lms_user_id.

    The gradebook that Canvas exports will do, too, and so will Moodle's grading worksheet, which says how late each
    student was. All their columns stay, beside these.
    """
    people = read_table(roster, "id", "ID", "Identifier") if roster else []
    for row in people:
        if "id" not in row and "ID" in row:
            row["id"], row["lms_user_id"] = identifier(row.get("SIS Login ID") or row["ID"]), row["ID"]
            row["last_name"], _, row["first_name"] = row["Student"].partition(", ")
        elif "id" not in row:
            row["lms_user_id"] = f"p{row['Identifier'].split()[-1]}"
            row["id"], row["first_name"] = identifier(row["Email address"] or row["Full name"]), row["Full name"]
            late = re.search(r"(\d[\w ]*) late", row["Status"])  # "Submitted for grading - 2 days 3 hours late"
            row["late"] = late[1] if late else ""
    return people


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
    by_roster([one for one in found if one.student], people)
    left |= by_places(found, people)
    late = {row["id"]: row.get("late", "") for row in people}
    found = [one for one in found if one.student]
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
        last.back = last.back or next((one.back for one in reversed(earlier) if one.back), "")
        last.late = last.late or late.get(student, "")
        put(last, submitted / student / notebook)
        counted.append(last)
    return counted, left


def put(one: Submission, target: Path) -> None:
    """Write a submission into its folder. Of one put in by hand the feedback goes where the one before went."""
    back = one.back or ((target / BACK).read_text(encoding="utf-8") if (target / BACK).exists() else "")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / f"{one.notebook}.ipynb").write_bytes(one.text)
    if one.late:
        (target / LATE).write_text(one.late, encoding="utf-8")
    if back:
        (target / BACK).write_text(back, encoding="utf-8")
