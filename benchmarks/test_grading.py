"""What grading a class costs: 30 submissions of each notebook; bar: right marks, 12 CPU seconds each.

Solutions, untouched notebooks, five hostile ones, two or more of the known wrong answers of each exercise, and cheats.
"""

import itertools
import resource
import sys
import time
from pathlib import Path

import nbformat
import pytest

from tools import assignments
from tools.grading import __main__ as grading
from tools.grading.course import Course
from tools.mistakes import known

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("notebooks/*.ipynb"))
HOSTILE = {
    "exits": "import os\nos._exit(1)",
    "loops": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "memory": "import os\nwhile os.fork() or True: x = bytearray(10**9)",
    "output": "while True: print('x' * 1000)",
    "deletes": "import os, shutil\nshutil.rmtree('/', ignore_errors=True)\nos.kill(-1, 9)\nos._exit(0)",
}


def seconds() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def answers(course: Course, name: str) -> dict[str, tuple[dict[str, str], dict[str, bool]]]:
    """Of each student the answers, by exercise, and whether each is right."""
    cells = nbformat.read(course.root / "source" / name / f"{name}.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]  # a teacher reads the others
    solved = {cell.id: cell.source for cell in code if cell.metadata.get("nbgrader", {}).get("solution")}
    assert set(solved) <= set(course.exercises(name))
    last = list(solved)[-1]
    students = {f"solved{number}": (solved, dict.fromkeys(solved, True)) for number in range(3)}
    students["untouched"] = {}, dict.fromkeys(solved, False)
    for kind, source in HOSTILE.items():  # the first one, so that the others come after it
        hit = {name: name != next(iter(solved)) for name in solved}
        students[kind] = (solved | {next(iter(solved)): source}, hit)
    mistakes = known(name)
    ones = []
    for exercise, solution in solved.items():
        wrong = [(exercise, one.name, one.made_in(solution)) for one in mistakes.get(exercise, [])]
        files = sorted((ROOT / "tests" / "cheats" / name[:2] / exercise).glob("*.py"))
        cheats = [(exercise, path.stem, path.read_text(encoding="utf-8")) for path in files]
        ones.append([*wrong[:2], *cheats, *wrong[2:]])
    in_turn = [one for one_of_each in itertools.zip_longest(*ones) for one in one_of_each if one]
    for exercise, mistake, answer in in_turn[: 30 - len(students)]:
        right = {name: name != exercise for name in solved}
        students[f"{exercise}.{mistake}"] = (solved | {exercise: answer}, right)
    for number in range(30 - len(students)):  # where fewer wrong answers are known
        students[f"last{number}"] = (solved | {last: "raise NotImplementedError"}, {one: one != last for one in solved})
    return students


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of namespaces is Linux's")
def test_grading(name, tmp_path, report, capsys):
    assignments.make([ROOT / "notebooks" / f"{name}.ipynb"], tmp_path / "course")
    course = Course(tmp_path / "course")
    students = answers(course, name)
    for student, (sources, _) in students.items():
        notebook = nbformat.read(course.root / "release" / name / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            cell.source = sources.get(cell.metadata.get("nbgrader", {}).get("grade_id"), cell.source)
        (tmp_path / "in" / student).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / "in" / student / f"{name}.ipynb")
    used, begun = seconds(), time.monotonic()
    assert grading.main(["--submissions", str(tmp_path / "in"), "--course", str(course.root)]) == 0
    used, took = seconds() - used, time.monotonic() - begun
    points = course.exercises(name)
    wrong = [
        f"{one.student}: {exercise}"
        for one in course.graded(name)
        for exercise, right in students[one.student][1].items()
        if one.exercises[exercise].points != (points[exercise] if right else 0)
    ]
    with capsys.disabled():
        report(submissions=len(students), cpu_seconds_each=round(used / len(students), 2), minutes=round(took / 60, 1))
    assert len(students) == 30 and not wrong, wrong
    assert used / len(students) <= 12
