"""Grades the course's own solutions as students would have written them: each style gets full marks for each exercise.

    python benchmarks/honest_styles.py [--exercise busy]        # all exercises take about an hour

Prints each solution that is refused or wrong in a style, with the reason, and how many there were.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.utils import is_grade, is_solution

from labcourse.check.cells import names, needed
from tools.assignments import without_our_own
from tools.grading.execute import RunExercises, exercise_of, is_setup, is_wrong

ROOT = Path(__file__).resolve().parents[1]
# What stands in cells above the answer, and in the answer's own cell, with {answer} for the solution.
STYLES: dict[str, tuple[list[str], str]] = {
    "printed": ([], "{answer}\n\nprint({name})"),
    "displayed": ([], "{answer}\n\n{name}"),
    "timed": ([], "%%time\n{answer}"),
    "a line timed": ([], "{answer}\n%time print({name})"),
    "asked": ([], "{answer}\n{name}?"),
    "a command": ([], "files = !ls\n{answer}\nprint(len(files))"),
    "commands in blocks": ([], "if not __name__:\n    !pip install \\\n        einops\n{answer}"),
    "a magic": ([], "%matplotlib inline\n{answer}"),
    "comments": ([], "# My answer\n\n\n{answer}\n\n\n# It took an hour."),
    "without comments": ([], "{unparsed}"),
    "twice": ([], "{answer}\n\n\n{answer}"),
    "asserted": ([], "{answer}\n\nassert callable({name}), 'a function'"),
    "main guard": ([], "{answer}\n\nif __name__ == '__main__':\n    print({name})"),
    "loop": ([], "{answer}\n\nfor step in range(3):\n    print(step, {name})"),
    "while": ([], "{answer}\n\nn = 3\nwhile n > 0:\n    n -= 1"),
    "try": ([], "{answer}\n\ntry:\n    {name}(1, 2, 3, 4, 5, 6)\nexcept Exception as error:\n    print(error)"),
    "comprehension": ([], "{answer}\n\nsizes = [one**2 for one in range(3)]\nprint(sizes)"),
    "lambda": ([], "{answer}\n\ntwice = lambda value: 2 * value\nprint(twice(2))"),
    "counter": (
        [],
        "{answer}\n\ndef count(values):\n    open = 0\n    for _ in values:\n        open += 1\n    return open",
    ),
    "slots": ([], "class Pair:\n    __slots__ = ('a', 'b')\n\n{answer}"),
    "types": ([], "from __future__ import annotations\n\nlimit: float = 3.0\n{answer}"),
    "alias": ([], "{answer}\n\nmine = {name}"),
    "warnings": ([], "import warnings\nwarnings.filterwarnings('ignore')\n{answer}"),
    "imports": ([], "import math, random\nimport numpy as np\n{answer}"),
    # What an earlier cell has done is read first, so that the answer is not defined if that cell was not run.
    "star": (["from math import *"], "print(floor(2.5))\n{answer}"),
    "constant": (["LIMIT = 3"], "print(LIMIT)\n{answer}"),
    "settings": (["settings = {}", "settings.update(a=1)", "settings['b'] = 2"], "print(settings['b'])\n{answer}"),
    "appended": (["found = []", "found.append(1)"], "print(found[0])\n{answer}"),
    "pushed": (["import heapq\nheap = []", "heapq.heappush(heap, 3)"], "print(heap[0])\n{answer}"),
    "rows": (["rows = [{}, {}]", "for row in rows:\n    row['a'] = 1"], "print(rows[0]['a'])\n{answer}"),
    "global": (["def begin_with():\n    global START\n    START = 1", "begin_with()"], "print(START)\n{answer}"),
    "plot": ([], "import matplotlib.pyplot as plt\n{answer}\n\nplt.plot([1, 2])\nplt.show()"),
    "scratch": (["1 / 0"], "{answer}"),
    "names of other cells": ([], "{answer}\n\n{others}"),
}


def exercises() -> Iterator[tuple[str, list[str], list[NotebookNode], NotebookNode, NotebookNode]]:
    """Each exercise: its notebook, the setup cells, the code cells that students have above it, solution and check."""
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = [cell for cell in without_our_own(nbformat.read(path, as_version=4)).cells if cell.cell_type == "code"]
        setup = [cell.source for cell in cells if is_setup(cell)]
        above: list[NotebookNode] = []
        for cell in cells:
            if is_grade(cell):
                yield path.stem, setup, above[:-1], above[-1], cell
            elif not is_setup(cell):
                above.append(cell)


def written(style: str, solution: str, above: list[NotebookNode]) -> list[str]:
    """The sources of a student's cells: those above the answer, and the answer."""
    name = sorted(names(solution).bound)[0]
    bound = {one for cell in above if not is_solution(cell) for one in names(cell.source).bound}
    others = "\n".join(f"{one} = 0\nprint({one})" for one in sorted(bound) if one not in names(solution).used_later)
    parts = {"answer": solution, "name": name, "unparsed": ast.unparse(ast.parse(solution)), "others": others}
    cells, answer = STYLES[style]
    return [*cells, answer.format(**parts)]


def main() -> int:
    """The command line; the number of solutions that got no full marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exercise", help="its name; default: all")
    asked, failed, graded = parser.parse_args(), 0, 0
    grader = RunExercises(isolation="none", seed=1)
    for notebook, setup, above, solution, check in exercises():
        if asked.exercise not in (None, exercise_of(check)):
            continue
        for style in STYLES:
            *more, answer = written(style, solution.source, above)
            own = new_code_cell(answer, metadata=solution.metadata)
            cells = [*above, *map(new_code_cell, more), own, new_code_cell(check.source, metadata=check.metadata)]
            added = range(len(above), len(above) + len(more))
            places = needed([cell.source for cell in cells], {len(cells) - 2, len(cells) - 1}, added)
            grader.run([cells[place] for place in places], setup, notebook)
            graded += 1
            if is_wrong(cells[-1]):
                failed += 1
                told = [output.evalue for cell in cells[-2:] for output in cell.outputs if "evalue" in output]
                print(f"{notebook} {exercise_of(check)}, {style}: {told}", flush=True)
    RunExercises.end()
    print(f"{graded} answers, {failed} without full marks")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
