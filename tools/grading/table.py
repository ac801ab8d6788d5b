"""The table of marks: one row per student, one column per exercise that was handed out."""

import csv
from pathlib import Path

from tools.grading.collect import read_roster
from tools.grading.course import Course, Graded


def notes(graded: Graded) -> str:
    """Why points are missing or may change: late; crashed; out of time; a teacher has to read an answer."""
    found = ["late"] if graded.late else []
    found += [f"{one.stopped}: {one.name}" for one in graded.exercises.values() if one.stopped]
    found += [f"to be read: {one.name}" for one in graded.exercises.values() if one.points is None]
    return "; ".join(found)


def write(
    course: Course, path: Path, roster: Path | None = None, failed: dict[tuple[str, str], str] | None = None
) -> None:
    """Write the marks of all notebooks that any student handed in; empty where a student did not.

    Args:
        roster: the students of the course; those who handed nothing in get a row, too.
        failed: reasons why nbgrader could not grade a submission, by student and notebook.
    """
    failed = failed or {}
    people = {row["id"]: row for row in read_roster(roster)}
    columns, cells = ["student", *(["last_name", "first_name"] if people else [])], {}
    for notebook in course.released():
        if not course.submitted(notebook):
            continue
        points = course.exercises(notebook)
        columns += [f"{notebook} {name} (of {most:g})" for name, most in points.items()]
        columns += [f"{notebook} (of {sum(points.values()):g})", f"{notebook} notes"]
        for graded in course.graded(notebook):
            marks = [one.points for one in graded.exercises.values()]
            row = cells.setdefault(graded.student, {})
            for (name, most), one in zip(points.items(), marks, strict=True):
                row[f"{notebook} {name} (of {most:g})"] = "" if one is None else f"{one:g}"
            row[f"{notebook} (of {sum(points.values()):g})"] = f"{sum(one or 0 for one in marks):g}"
            row[f"{notebook} notes"] = notes(graded)
    for (student, notebook), reason in failed.items():
        cells.setdefault(student, {})[f"{notebook} notes"] = f"not graded: {reason}"
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for student in sorted({*people, *cells}):
            names = {
                key: people.get(student, {}).get(key) or "" for key in columns if key in ("last_name", "first_name")
            }
            table.writerow({"student": student, **names, **cells.get(student, {})})
