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

A folder of the class list comes first, whatever the layout: the outermost one says who the student is. Of the other
layouts it is else the beginning of the file's name that is in the list. Without a list it is the outermost folder in
which the paths differ.

A notebook is known by its exercises, so its file may have any name: "NOTEBOOK (1).ipynb", "final-2.ipynb.txt". Of
several versions by one student the last one counts, but a file that you put in by hand, under the student's name,
counts over all that a platform named, now and later.
"""

import contextlib
import csv
import io
import itertools
import os
import re
import shutil
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO

import nbformat
from nbformat import NotebookNode

# What platforms call a file or its folder: `when` tells versions apart, and feedback goes to a name that begins with
# `back`.
CANVAS = re.compile(r"(?P<back>(?P<name>[^\s_A-Z-]+)(?P<late>_LATE)?_(?P<user>[1-9]\d*)_(?P<when>[1-9]\d*)_).+")
ANONYMOUS = re.compile(r"(?P<back>(?P<late>LATE_)?(?P<name>anon_[^_]+)_(?P<when>\d+)_).+")
MOODLE = re.compile(r"(?P<back>(?P<name>[^_/]+)_(?P<user>\d+)_assignsubmission_[a-z]+_?).*")
BLACKBOARD = re.compile(r".+_(?P<name>[^_]+)_attempt_(?P<when>[\d-]+)_.+")
BRIGHTSPACE = re.compile(r"(?P<user>\d+)-\d+ - (?P<name>.+?) - (?P<when>\w+ \d+, \d+ \d+ [AP]M)( - .+)?")
PLATFORMS = (CANVAS, ANONYMOUS, MOODLE, BLACKBOARD, BRIGHTSPACE)
VERSION = re.compile(r"(?:[-_ ]|\s*\()(\d{1,3})\)?$")  # "-2" by Canvas, " (1)" by browsers
LATE = "late.txt"  # beside a notebook that the platform calls late: by how much, where it says so
BY_HAND = "by_hand.txt"  # beside a notebook that you put in by hand
BACK = "back.txt"  # beside a notebook from Canvas or Moodle: the name of its feedback in the zip file that goes back
NOTEBOOKS = (".ipynb", ".json", ".ipynb.txt")  # ends of names: browsers add some
KEPT_COPY = "_before_update_"  # in the name of an older copy, which `make student` keeps beside an updated notebook
LIMIT = 20_000_000  # bytes of a notebook: a zip file of 5 MB may hold gigabytes
DEPTH = 3  # zip files within zip files
# Folders that layouts have in common, and that nobody is called.
COMMON = re.compile(
    r"(version|week|part|assignment|student|notebook|submission|homework|release|course)s?[ _-]?\d{0,2}", re.IGNORECASE
)
SKIPPED = ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "timestamp.txt", LATE, BY_HAND, BACK)
NAMESAKES = "put the file of each into a folder with the id in the class list, or give their numbers there"


@dataclass
class Submission:
    """One notebook file."""

    path: str  # in the export
    text: bytes
    notebook: str
    student: str = ""
    user: str = ""  # what the platform calls the student, "" for a file that a person named
    version: tuple[int, ...] = ()  # the larger, the later
    late: str = ""
    back: str = ""
    places: list[str] = field(default_factory=list)  # folders, one of which may be the student
    stem: str = ""  # the file's name, if it may begin with the student's


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


def read_notebook(content: bytes) -> NotebookNode:
    """A notebook, if nbgrader can read and write it. Raises an error, of one of many kinds, if not."""
    notebook = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
    nbformat.validate(notebook)
    nbformat.writes(notebook).encode()  # half a character has no bytes
    for cell in notebook.cells:
        if not isinstance(cell.metadata.get("nbgrader", {}).get("grade_id", ""), str):
            raise ValueError("the name of a cell is no text")
    return notebook


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
        marks = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in read_notebook(content).cells}
    except Exception as error:
        raise ValueError(f"not a notebook that can be read ({type(error).__name__}): {SAVE_AGAIN}") from error
    notebook = max(course, key=lambda one: len(course[one] & marks))
    if not course[notebook] & marks:
        raise ValueError("it has no exercise of this course: are its cells copied into a new notebook?")
    stem = path.stem.removesuffix(".ipynb")
    version = int(found[1]) if (found := VERSION.search(stem)) else 0
    one = Submission(name, content.decode("utf-8-sig").encode(), notebook, version=(version,))
    folders = path.parts[:-1]
    for part, platform in itertools.product(path.parts, PLATFORMS):  # the outermost: students name what they upload
        if match := platform.fullmatch(part):
            folders = path.parts[: path.parts.index(part)]
            said = match.groupdict()
            one.student, one.user = identifier(said["name"]), said.get("user", said["name"])
            one.back = f"{said['back']}{notebook}.html" if "back" in said else ""
            if platform is MOODLE:  # its numbers are of participants, and its names of folders
                one.user, one.back = f"p{one.user}", f"{said['back']}/{notebook}.html"
            one.version = (*moment(said.get("when", "")), version)
            one.late = "late" if said.get("late") else ""
            break
    else:
        one.stem = stem
        if folders[-1:] == (notebook,) and len(folders) > 1:  # nbgrader's own layout
            one.student = identifier(path.parts[-3])
    named = [part.removesuffix(".zip") for part in folders]
    one.places = [part for part in named if not part.startswith(notebook) and not COMMON.fullmatch(part)]
    return one


def moment(text: str) -> tuple[int, ...]:
    """Numbers that grow with time: of "2027-03-01-22-12-05", the number of a file, or "Mar 1, 2027 1012 PM"."""
    with contextlib.suppress(ValueError):
        text = f"{datetime.strptime(text, '%b %d, %Y %I%M %p'):%Y-%m-%d-%H-%M}"
    return tuple(map(int, re.findall(r"\d+", text)))


def identifier(name: str) -> str:
    """A name as nbgrader can use it for a folder."""
    return re.sub(r"[^\w.@+-]+", "_", unicodedata.normalize("NFC", name)).strip("_.")


def simplified(name: str) -> str:
    """A name without accents, capitals, blanks and signs: Canvas writes "smithjohn"."""
    return re.sub(r"[^\w]|_", "", unicodedata.normalize("NFKD", name).casefold())


NOT_LISTED = "its path names nobody of the class list: put it into a folder with the student's id"
SAVE_AGAIN = "if JupyterLab opens it, save it there and take that file"
WHOSE = "it does not say whose it is: put it into a folder with the student's name"


def by_places(submissions: list[Submission]) -> None:
    """Name the students whom neither a platform nor a class list names, by folders or by a file's name."""
    unnamed = [one for one in submissions if not one.student]
    # The outermost folder in which the paths differ; if there is one path only, the innermost.
    shared = len(os.path.commonprefix([one.places for one in unnamed]))
    for one in unnamed:
        if one.places:
            differs = min(shared, *(len(each.places) - 1 for each in unnamed if each.places))
            one.student = identifier(one.places[differs])
        elif " - " in one.stem:  # as Google names copies
            one.student = identifier(one.stem.partition(" - ")[0])


def listed(one: Submission, known: dict[str, set[str]]) -> str:
    """The id of the student in the class list whom a folder, its end, or the beginning of the file's name names."""
    ends = [place[at:] for place in one.places for at in range(len(place)) if f"-{place}"[at] in "-_"]  # week2-jsmith
    starts = [one.stem[:end] for end in range(len(one.stem), 2, -1) if not one.stem[end : end + 1].isalpha()]
    return next((next(iter(ids)) for name in ends + starts if len(ids := known.get(simplified(name), ())) == 1), "")


def ids_of(people: list[dict[str, str]]) -> dict[str, set[str]]:
    """The ids of the class list, by each of their numbers and names."""
    ids: dict[str, set[str]] = defaultdict(set)
    for row in people:
        first, last = row.get("first_name", ""), row.get("last_name", "")
        for name in (row["id"], row.get("lms_user_id", ""), row.get("email", ""), first + last, last + first):
            ids[simplified(name)].add(row["id"])
    ids.pop("", None)
    return ids


def by_roster(submissions: list[Submission], people: list[dict[str, str]]) -> None:
    """Give students the ids of the class list, by which a folder, their number or else their name is known there."""
    ids = ids_of(people)
    for one in submissions:
        named, numbered = ids.get(simplified(one.student), set()), ids.get(one.user, set())
        fitting = named & numbered or named or numbered
        if who := listed(one, ids):
            one.student, one.user = who, ""
        elif len(fitting) == 1:
            one.student = next(iter(fitting))


def read_table(path: Path, *kinds: str) -> list[dict[str, str]]:
    """The rows of a CSV file, separated by commas, semicolons or tabs.

    Args:
        kinds: of tables, each by columns that it has. Rows with nothing in the first one are left out.

    Raises:
        ValueError: if the file is of none of these kinds, or is not in UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8: in Excel, save it as `CSV UTF-8`") from error
    separator = max(",;\t", key=text.partition("\n")[0].count)  # Excel writes semicolons in much of Europe
    table = csv.DictReader(io.StringIO(text), delimiter=separator, restkey="", restval="", skipinitialspace=True)
    columns = table.fieldnames or []
    kind = next((kind for kind in kinds if {*kind.split(",")} <= {*columns}), None)
    if kind is None:
        raise ValueError(f"{path} needs the columns {'; or '.join(kinds)}. It has {','.join(columns)}")
    rows: dict[str, dict[str, str]] = {}
    for row in table:
        row.pop("", None)  # what stands beside the columns
        rows.setdefault(row[kind.split(",")[0]], row)
    rows.pop("", None)
    return [*rows.values()]


def read_roster(roster: Path | None) -> list[dict[str, str]]:
    """The students of a course: id, first_name, last_name, email, lms_user_id.

    The gradebook that Canvas exports will do, too, and so will Moodle's grading worksheet, which says how late each
    student was. All their columns stay, beside these.
    """
    people = read_table(roster, "id", "ID,Student", "Identifier,Full name") if roster else []
    names = Counter(row.get("Full name") for row in people)
    for row in people:
        if "id" in row:
            row["id"] = identifier(row["id"])
        elif "Student" in row:
            row["id"], row["lms_user_id"] = identifier(row.get("SIS Login ID") or row["ID"]), row["ID"]
            row["last_name"], _, row["first_name"] = row["Student"].partition(", ")
        else:
            number, name = re.sub(r"\D", "", row["Identifier"]), row["Full name"]
            row["lms_user_id"], row["first_name"] = f"p{number}", name
            row["id"] = identifier(row.get("Email address") or (name if names[name] == 1 else f"{name} {number}"))
            late = re.search(r"(\d[\w ]*) late", row.get("Status", ""))  # "Submitted for grading - 2 days 3 hours late"
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
    if people:
        by_roster(found, people)
    else:
        by_places(found)
    left |= {one.path: NOT_LISTED if people else WHOSE for one in found if not one.student}
    late = {row["id"]: row.get("late", "") for row in people}
    found = [one for one in found if one.student]
    versions: dict[tuple[str, str], list[Submission]] = defaultdict(list)
    for one in sorted(found, key=lambda one: (not one.user, one.version, one.path)):
        versions[one.student, one.notebook].append(one)
    counted = []
    for (student, notebook), of_one in versions.items():
        target = submitted / student / notebook
        if of_one[-1].user and (target / BY_HAND).exists():
            text = (target / f"{notebook}.ipynb").read_bytes()
            of_one.append(Submission("the file that you had put in by hand", text, notebook, student))
        *earlier, last = of_one
        if last.user and len({one.user for one in of_one}) > 1:
            left |= {one.path: f"several students are called {student}: {NAMESAKES}" for one in of_one}
            continue
        left |= {one.path: f"{last.path} counts" for one in earlier}
        last.back = last.back or next((one.back for one in reversed(earlier) if one.back), "")
        last.late = last.late or late.get(student, "")
        put(last, target)
        counted.append(last)
    return counted, left


def put(one: Submission, target: Path) -> None:
    """Write a submission into its folder. Of one put in by hand the feedback goes where the one before went."""
    back = one.back or ((target / BACK).read_text(encoding="utf-8") if (target / BACK).exists() else "")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / f"{one.notebook}.ipynb").write_bytes(one.text)
    if not one.user:
        (target / BY_HAND).touch()
    if one.late:
        (target / LATE).write_text(one.late, encoding="utf-8")
    if back:
        (target / BACK).write_text(back, encoding="utf-8")
