"""The table of marks: one row per student, one column per exercise that was handed out."""

import csv
from pathlib import Path

from tools.grading.collect import read_roster
from tools.grading.course import Course, Graded
from tools.grading.report import REFUSED


def notes(graded: Graded) -> str:
    """What a teacher should know: late; crashed; refused; read by a teacher, or still to be read; copied cells."""
    found = ["late"] if graded.late else []
    found += [f"{one.stopped}: {one.name}" for one in graded.exercises.values() if one.stopped]
    found += [f"refused: {one.name}" for one in graded.exercises.values() if REFUSED in one.message]
    found += [f"to be read: {one.name}" for one in graded.exercises.values() if one.points is None]
    found += [f"by hand: {one.name}" for one in graded.exercises.values() if one.by_hand]
    found += [f"copied or split, graded as one cell: {name}" for name in graded.copied]
    return "; ".join(found)


def write(
    course: Course, path: Path, roster: Path | None = None, failed: dict[tuple[str, str], str] | None = None
) -> None:
    """Write the marks of all notebooks that any student handed in; empty where a student did not.

    The sum is empty, too, as long as a teacher has to read an answer.

    Args:
        roster: the students of the course; those who handed nothing in get a row, too.
        failed: reasons why a submission has no marks or no feedback, by student and notebook.
    """
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
            row[f"{notebook} (of {sum(points.values()):g})"] = "" if None in marks else f"{sum(marks):g}"
            row[f"{notebook} notes"] = notes(graded)
        for student in course.submitted(notebook):
            row = cells.setdefault(student, {})
            reason = (failed or {}).get((student, notebook), "" if f"{notebook} notes" in row else "not graded")
            row[f"{notebook} notes"] = "; ".join(filter(None, [row.get(f"{notebook} notes"), reason]))
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        for student in sorted({*people, *cells}):
            names = {
                key: people.get(student, {}).get(key) or "" for key in columns if key in ("last_name", "first_name")
            }
            table.writerow({"student": student, **names, **cells.get(student, {})})
