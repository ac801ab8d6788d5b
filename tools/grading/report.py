"""What a teacher reads: the marks of everybody, and which known misconceptions how many students have.

The known ones are those of tools/wrong_answers: a file a notebook, and a table for each exercise and mistake, in which
`expects` is the part of the check's message that shows the mistake.
"""

import html
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pandas as pd

from tools.grading.course import LATE, RIGHT, Course
from tools.grading.execute import class_seed

WRONG_ANSWERS = Path(__file__).parents[1] / "wrong_answers"
pd.set_option("display.max_colwidth", None)  # messages are not cut
OTHER = "another mistake"
GENERAL = "your answer is|with other inputs|these keys are"  # begins parts of messages that many mistakes give
# Of messages that no known mistake gives: what an answer fails with, or that it is of another kind
TELLING = r"fails with \w+|is expected, not|these keys are|^(?!WrongAnswer)\w+(?=: )"
READABLE = {"is expected, not": "a value of another kind", "these keys are": "other keys than asked for"}
PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.4 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border-bottom: 1px solid #8888; padding: .3em .6em; text-align: left; vertical-align: top }}
</style>
<h1>{title}</h1>
<p>{text}</p>
{sections}
</html>
"""


def known(notebook: str, folder: Path = WRONG_ANSWERS) -> dict[str, dict[str, dict]]:
    """The tables of a notebook's mistakes, by exercise and name. The notebook's name begins with its number."""
    path = folder / f"{notebook.partition('_')[0]}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def mistake(message: str, known: dict[str, str]) -> str:
    """The mistake in an answer in words.

    Args:
        message: the one that the student reads.
        known: the names of mistakes by the part of the message that tells them, in small letters.
    """
    wrong = message.startswith("WrongAnswer")
    if wrong and (fitting := [part for part in known if part in message.casefold() and not re.match(GENERAL, part)]):
        return known[max(fitting, key=len)]  # which says most
    found = re.search(TELLING, message)
    return READABLE.get(found[0], found[0]) if found else OTHER if wrong else message


def write_class(course: Course, notebook: str, left: dict[str, str]) -> Path:
    """Write the report on a notebook as a page of HTML: how many made which mistake, and what was not graded.

    Args:
        left: files that belong to nobody, with the reason.
    """
    path = course.root / f"{notebook}.html"
    mistakes, graded, sections = known(notebook), course.graded(notebook), []
    for exercise in course.exercises(notebook):
        names = defaultdict(list)
        for name, one in mistakes.get(exercise, {}).items():
            names[one["expects"].casefold()].append(re.sub("_s(?=_|$)", "'s", name).replace("_", " "))
        told = {message: " or ".join(found) for message, found in names.items()}
        messages = pd.Series([answers[exercise].message for answers in graded.values()], dtype=str)
        wrong = messages[messages != RIGHT]
        groups = wrong.groupby([mistake(one, told) for one in wrong])
        first_few = groups.agg(lambda found: " · ".join(found.unique()[:5]))
        counts = pd.DataFrame({"students": groups.size(), "messages": first_few})
        title = f"{exercise}: {len(messages) - len(wrong)} of {len(messages)} right"
        sections.append(part(title, counts.sort_values("students", ascending=False).rename_axis("mistake")))
    reasons = pd.Series(left | course.not_graded(notebook), dtype=str).rename_axis("file or student").to_frame("reason")
    sections.append(part(f"Not graded: {len(reasons)}", reasons))
    about = f"The checks drew from SEED={class_seed(course.root)}."
    write_page(path, f"{notebook}: what the class knows", about, *sections)
    return path


def write_page(path: Path, title: str, text: str, *sections: str) -> None:
    """Write a page of HTML, which runs and loads nothing."""
    page = PAGE.format(title=html.escape(title), text=html.escape(text), sections="\n".join(sections))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def part(title: str, table: pd.DataFrame) -> str:
    """A heading, and a table with its index, unless it is empty."""
    return f"<h2>{html.escape(title)}</h2>" + (table.reset_index().to_html(index=False) if len(table) else "")


def write_marks(course: Course) -> None:
    """Write grades.csv, the marks of all notebooks so far, and canvas.csv if the class list is Canvas's gradebook.

    Everybody in the class list has a row, empty where nothing was handed in.
    """
    people = course.people()
    tables = [people.reindex(columns=["last_name", "first_name"] if len(people) else [])]
    tables += [marks(course, notebook) for notebook in course.released() if course.submitted(notebook)]
    table = pd.concat(tables, axis=1).sort_index()
    table.to_csv(course.root / "grades.csv", index_label="student", float_format="%g")
    if "Student" in people:
        write_for_canvas(course, table, people)


def write_for_canvas(course: Course, table: pd.DataFrame, people: pd.DataFrame) -> None:
    """Write the sums as Canvas imports them: of a notebook into the assignment that has its name in its own.

    Args:
        table: as `write_marks` writes it.
        people: the gradebook that Canvas exported.
    """
    exported, names, possible = people.copy(), [], {"Student": "    Points Possible"}
    for notebook in course.released():
        most = sum(course.exercises(notebook).values())
        if (total := f"{notebook} (of {most:g})") in table:
            names += [next((one for one in exported if re.fullmatch(rf".*{notebook}.* \(\d+\)", one)), notebook)]
            exported[names[-1]], possible[names[-1]] = table[total], most
    graded = exported.dropna(subset=names, how="all")
    columns = [one for one in ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", *names) if one in exported]
    rows = pd.concat([pd.DataFrame([possible]), graded])[columns]
    rows.to_csv(course.root / "canvas.csv", index=False, float_format="%g")


def marks(course: Course, notebook: str) -> pd.DataFrame:
    """The columns of a notebook, a row for each student who handed it in: points of each exercise, sum, and notes.

    The sum is empty as long as a teacher has to read an answer.
    """
    submitted, most, people = course.submitted(notebook), course.exercises(notebook), course.people()
    table = pd.DataFrame(index=submitted, columns=[*most], dtype=float)
    reasons = course.not_graded(notebook)
    notes = {student: [f"not graded: {reasons.get(student, 'not yet')}"] for student in submitted}
    for student, answers in course.graded(notebook).items():
        table.loc[student] = pd.Series({name: one.points for name, one in answers.items()}, dtype=float)
        notes[student] = [one.note for one in answers.values() if one.note]
    for student in submitted:
        notes[student] += ["late"] * course.handed_in(student, notebook).with_name(LATE).exists()
        notes[student] += ["not in the class list"] * (len(people) > 0 and student not in people.index)
    table.columns = [f"{notebook} {name} (of {points:g})" for name, points in most.items()]
    table[f"{notebook} (of {sum(most.values()):g})"] = table.sum(axis=1, skipna=False)
    table[f"{notebook} notes"] = pd.Series({student: "; ".join(found) for student, found in notes.items()})
    return table
