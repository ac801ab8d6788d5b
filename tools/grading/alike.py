"""Answers that are the same but for names, comments and blanks: for a teacher to look at. They prove nothing."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pandas as pd

from labcourse.check.cells import plain
from tools.grading.course import Course, answers_of, readable

SHORTEST = 6  # statements: shorter answers are alike by themselves
OWN = "the course's solution"
MARKS = re.compile(r"^\s*### (BEGIN|END) SOLUTION$", re.MULTILINE)


def shape(source: str) -> str:
    """A program's syntax tree with its names numbered in their order, "" if it is short or no Python."""
    try:
        tree = ast.parse(plain(source))
    except SyntaxError:
        return ""
    if sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) < SHORTEST:
        return ""
    numbers: dict[str, str] = {}
    for node in ast.walk(tree):
        for field in ("id", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, numbers.setdefault(name, str(len(numbers))))
    return ast.dump(tree)


def shapes(path: Path) -> dict[str, str]:
    """The shape of each exercise's answer in a notebook."""
    code = [cell for cell in readable(path).cells if cell.cell_type == "code"]
    return {exercise: shape(MARKS.sub("", answer)) for exercise, answer in answers_of(code).items()}


def alike(course: Course, notebook: str) -> pd.DataFrame:
    """For each exercise in which answers are alike: how many students, and who with whom, or with the course."""
    file = f"{notebook}.ipynb"
    paths = {who: course.root / "submitted" / who / notebook / file for who in course.submitted(notebook)}
    paths[OWN] = course.root / "source" / notebook / file
    untouched = shapes(course.root / "release" / notebook / file)
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for who, path in paths.items():
        for exercise, found in shapes(path).items():
            if found not in ("", untouched.get(exercise)):
                groups[exercise][found].append(who)
    rows = {}
    for exercise, by_shape in groups.items():
        shared = [who for who in by_shape.values() if len(who) > 1]
        if shared:
            students = sum(len({*who} - {OWN}) for who in shared)
            rows[exercise] = {"students": students, "who": "; ".join(" = ".join(who) for who in shared)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["students", "who"]).rename_axis("exercise")
