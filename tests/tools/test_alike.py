"""Answers that are the same but for names and blanks."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools.grading.alike import OWN, alike, shape

NAME = "01_tiny"
LOOP = "def f(a):\n    total = 0\n    for b in a:\n        if b:\n            total += b\n    return total"


def renamed(source):
    return source.replace("total", "s").replace("b", "x").replace("\n    return", "\n\n    # the sum\n    return")


@pytest.fixture
def course(tmp_path):
    """A course of one exercise; a function that hands answers in."""

    class Folder:
        root = tmp_path

        def submitted(self, notebook):
            return sorted(path.name for path in (tmp_path / "submitted").iterdir())

    def write(place, answer):
        marks = {"nbgrader": {"grade_id": "f", "solution": True, "grade": False, "schema_version": 3}}
        path = tmp_path / place / NAME / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(new_notebook(cells=[new_code_cell(answer, metadata=marks)]), path)

    def hand_in(solution, **answers):
        write("release", "def f(a):\n    # TODO: your code here\n    raise NotImplementedError")
        write("source", solution)
        for student, answer in answers.items():
            write(f"submitted/{student}", answer)
        return alike(Folder(), NAME)

    return hand_in


def test_names_comments_and_blanks_do_not_count_and_other_ways_do():
    assert shape(LOOP) == shape(renamed(LOOP)) != shape(LOOP.replace("+=", "-="))
    assert shape("def f(a):\n    return sum(a)") == "", "so short an answer is anybody's"


def test_groups_are_named(course):
    other = LOOP.replace("if b", "if b > 0")
    table = course(LOOP.replace("total = 0", "total = 0.0"), ada=LOOP, bob=renamed(LOOP), cy=other)
    assert table.to_dict("index") == {"f": {"students": 2, "who": "ada = bob"}}


def test_the_course_s_solution_is_one_of_them(course):
    assert course(LOOP, ada=renamed(LOOP))["who"].tolist() == [f"ada = {OWN}"]
