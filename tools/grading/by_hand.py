"""`make answers`: all written answers to a question on one page, and a table for the marks, which `make grades` reads.

    python -m tools.grading.by_hand --notebook 04_two_streams       # or: make answers NOTEBOOK=04_two_streams

Writes assignments/answers/NOTEBOOK-QUESTION.html and .csv. A mark by hand stays only for the text it was given for.
"""

import argparse
import html
import re
from pathlib import Path

import pandas as pd
from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution

from tools.grading.collect import read_table
from tools.grading.course import Course, number_of, points_of, readable
from tools.grading.execute import exercise_of, take_from_beside, unite
from tools.grading.feedback import clean_html, markdown2html
from tools.grading.report import PAGE

MOST = 50_000  # characters of an output
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)  # of pandas's tables
COLOURS = re.compile(r"\x1b\[[\d;]*m")
PLOTLY, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"


def questions(course: Course, notebook: str) -> dict[str, float]:
    """The points of each exercise of a notebook that a person marks."""
    return points_of([cell for cell in course.cells(notebook) if is_solution(cell)])


def path_of(course: Course, notebook: str, question: str, suffix: str) -> Path:
    """The page or the table of a question."""
    return course.root / "answers" / f"{notebook}-{question}{suffix}"


def anonymous(notebook: str, student: str) -> str:
    """What a student is called in the page and the table of an answer."""
    return number_of(f"{notebook} {student}")


# ---- pages


def above(cells: list[NotebookNode], question: str) -> list[NotebookNode]:
    """The cells down to a question's answer, which is the last one; none if the answer was deleted."""
    names = [exercise_of(cell) for cell in cells]
    return cells[: names.index(question) + 1] if question in names else []


def answers(course: Course, notebook: str, question: str) -> dict[str, list[NotebookNode]]:
    """The cells down to the answer of each student, with the outputs that were handed in."""
    released, found = course.cells(notebook), {}
    for student in course.submitted(notebook):
        handed_in = readable(course.root / "submitted" / student / notebook / f"{notebook}.ipynb")
        unite(handed_in)
        take_from_beside(handed_in, released)
        found[student] = above(handed_in.cells, question)
    return {student: cells for student, cells in found.items() if cells}


def shown(output: NotebookNode) -> str:
    """An output as HTML: a table, a picture or text; of a figure that a program draws, its description."""
    data = output.get("data", {})
    if PLOTLY in data:
        meta = data[PLOTLY]["layout"].get("meta") or {}
        return f"<p>A figure. {html.escape(meta.get('text', ''))}</p>"
    if WIDGET in data:  # it needs a kernel
        return ""
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{"".join(data["image/png"].split())}">'
    if "text/html" in data:
        return STYLE.sub("", data["text/html"])[:MOST]
    text = output.get("text") or data.get("text/plain") or output.get("evalue", "")
    return f"<pre>{html.escape(COLOURS.sub('', text)[:MOST])}</pre>"


def outputs(cells: list[NotebookNode]) -> str:
    """What the student's own run showed since the last check and, folded, before."""
    parts = {False: "", True: ""}  # whether after the last check
    checks = [place for place, cell in enumerate(cells[:-1]) if is_grade(cell)]
    for place, cell in enumerate(cells[:-1]):
        for output in cell.get("outputs", []):
            try:
                part = shown(output)
            except (AttributeError, KeyError, TypeError):  # made by hand: no program writes it
                part = "<p>An output that cannot be shown.</p>"
            parts[place > max(checks, default=-1)] += clean_html(part)
    earlier = f"<details><summary>earlier outputs</summary>{parts[False]}</details>" if parts[False] else ""
    return earlier + (parts[True] or "<p>No outputs were handed in.</p>")


def write_page(course: Course, notebook: str, question: str, named: bool) -> None:
    """Write all answers to a question, and the table for their marks, which keeps those that it has."""
    table = path_of(course, notebook, question, ".csv")
    before = {row["answer"]: row for row in read_marked(table)}
    asked = above(course.cells(notebook), question)[-2]
    rows, sections = [], [markdown2html({"cell": asked}, asked.source)]
    found = answers(course, notebook, question)
    for student in sorted(found, key=None if named else lambda one: anonymous(notebook, one)):
        name, answer = anonymous(notebook, student), found[student][-1]
        row, text = before.get(name, {}), number_of(answer.source)
        if row.get("text") != text:
            note = f"{row['points']} points were for an earlier text" if row.get("points") else ""
            row = {"points": "", "comment": "", "note": note}
        rows.append(row | {"answer": name, "student": student, "text": text})
        sections += [
            f"<h2>{html.escape(f'{name} {student}' if named else name)}</h2>",
            f"<blockquote>{markdown2html({'cell': answer}, answer.source)}</blockquote>",
            outputs(found[student]),
        ]
    columns = ["answer", *(["student"] if named else []), "points", "comment", "note", "text"]
    table.parent.mkdir(exist_ok=True)
    pd.DataFrame(rows, columns=columns).to_csv(table, index=False, encoding="utf-8-sig")  # as Excel wants it
    about = (
        f"{len(rows)} answers, 0 to {questions(course, notebook)[question]:g} points each. The table is {table.name}."
    )
    page = PAGE.format(title=f"{notebook}: {question}", run=about, sections="\n".join(sections))
    path_of(course, notebook, question, ".html").write_text(page, encoding="utf-8")


# ---- marks


def read_marked(table: Path) -> list[dict[str, str]]:
    """The rows of a table that `write_page` wrote; none if it did not."""
    return read_table(table, "answer,points,comment,text") if table.exists() else []


def read_marks(course: Course, notebook: str) -> None:
    """Put marks and comments of the tables into the gradebook, if the answer has the text that they were given for.

    Raises:
        ValueError: if a mark is no number, or not one that the question has.
    """
    students = {anonymous(notebook, student): student for student in course.submitted(notebook)}
    run = course.run(notebook)
    for question, most in questions(course, notebook).items():
        table = path_of(course, notebook, question, ".csv")
        for row in read_marked(table):
            student = students.get(row["answer"])
            if student is None or not (row["points"] or row["comment"]):
                continue
            if row["text"] == run["graded"].get(student, {}).get("answers", {}).get(question):
                give(course, notebook, student, question, points_in(row, most, table), row["comment"])
            elif row["points"]:
                run["earlier"].setdefault(student, {})[question] = row["points"]
    course.keep_run(notebook, run)


def points_in(row: dict[str, str], most: float, table: Path) -> float | None:
    """The mark in a row of a table, None where the box is empty; raises ValueError if it is no mark."""
    if not row["points"]:
        return None
    if re.fullmatch(r"\d+([.,]\d*)?", row["points"]) and (points := float(row["points"].replace(",", "."))) <= most:
        return points
    raise ValueError(f"{table}: {row['answer']} has the points {row['points']!r}, and not a number from 0 to {most:g}")


def give(course: Course, notebook: str, student: str, question: str, points: float | None, comment: str) -> None:
    """Write a mark, if there is one, and a comment into the gradebook, as formgrader does."""
    with course.gradebook() as gradebook:
        grade = gradebook.find_grade(question, notebook, notebook, student)
        if points is not None:
            grade.manual_score, grade.needs_manual_grade = points, False
        gradebook.find_comment(question, notebook, notebook, student).manual_comment = comment
        gradebook.db.commit()


def take_back(course: Course, notebook: str, student: str, changed: set[str]) -> dict[str, str]:
    """Remove a student's marks by hand for exercises with a new answer, and their comments; what the marks were."""
    taken = {}
    with course.gradebook() as gradebook:
        submission = gradebook.find_submission_notebook(notebook, notebook, student)
        for grade in submission.grades:
            exercise = grade.name.removesuffix("_check")
            if exercise in changed and (grade.manual_score is not None or grade.extra_credit):
                taken[exercise] = f"{grade.score:g}"
                grade.manual_score = grade.extra_credit = None
                grade.needs_manual_grade = grade.auto_score is None
        for comment in submission.comments:
            if comment.name.removesuffix("_check") in changed:
                comment.manual_comment = None
        gradebook.db.commit()
    return taken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebook", help="default: all that were handed in")
    parser.add_argument("--named", action="store_true", help="with the students' names; default: without")
    parser.add_argument("--course", type=Path, help="nbgrader's course folder; default: assignments/")
    arguments = parser.parse_args()
    course = Course(arguments.course)
    try:
        asked = [one for one in course.named(arguments.notebook) if course.submitted(one)]
        found = [(notebook, question) for notebook in asked for question in questions(course, notebook)]
        for notebook, question in found:
            write_page(course, notebook, question, arguments.named)
            print(f"{path_of(course, notebook, question, '.html')}, and the same name with .csv for the marks")
        if not found:
            print("Nobody has handed in a notebook with a question that a person marks.")
    except ValueError as error:
        parser.exit(2, f"{error}\n")
