"""What grading a class costs, and that it finds right what was right at home.

30 submissions of each notebook: solutions, untouched notebooks, five hostile ones, two or more of the known wrong
answers of each exercise, and cheats. Bars: right marks, 6 CPU seconds each; then one late student by itself in 30 CPU
seconds, with the seed of the class. Ten honest notebooks: the same marks as at home.
"""

import itertools
import resource
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

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
    mistakes, cheats = known(name), known(name, ROOT / "tests" / "labcourse" / "cheats")
    ones = []
    for exercise, solution in solved.items():
        wrong, cheating = (
            [(exercise, one.name, one.made_in(solution)) for one in those.get(exercise, [])]
            for those in (mistakes, cheats)
        )
        ones.append([*wrong[:2], *cheating, *wrong[2:]])
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
    begun, seed = seconds(), course.run(name)["seed"]
    assert grading.main(["--student", "solved0", "--course", str(course.root)]) == 0
    late = seconds() - begun
    points = course.exercises(name)
    wrong = [
        f"{one.student}: {exercise}"
        for one in course.graded(name)
        for exercise, right in students[one.student][1].items()
        if one.exercises[exercise].points != (points[exercise] if right else 0)
    ]
    with capsys.disabled():
        report(submissions=len(students), cpu_seconds_each=round(used / len(students), 2), minutes=round(took / 60, 1))
        report(late_student_cpu_seconds=round(late, 1))
    assert late <= (300 if name == "12_speedrun" else 30) and course.run(name)["seed"] == seed
    assert len(students) == 30 and not wrong, wrong
    assert used / len(students) <= (12 if name == "12_speedrun" else 6)  # whose judge trains each entry


BUSY = """def busy(begin, end):
    covered, latest = 0.0, -np.inf
    for place in np.argsort(begin):
        covered += max(0.0, end[place] - max(latest, begin[place]))
        latest = max(latest, end[place])
    return covered"""
BY_CAUSE = """def idle_by_cause(launched, begin, end):
    us = {"host_wait": 0.0, "kernel_wait": 0.0, "other": 0.0}
    latest = begin.min()
    for place in np.argsort(begin):
        if (gap := begin[place] - latest) > 0:
            cause = "host_wait" if launched[place] > latest else "kernel_wait" if gap < 30 else "other"
            us[cause] += gap
        latest = max(latest, end[place])
    return us"""
# Of notebooks that are right when they are run from top to bottom, the cells that differ: by the cell that they replace
# (with a list, by several of its name), or before which they come ("+").
HONEST = {
    "helper": {
        "+busy": "def later(a, b):\n    return max(a, b)",
        "busy": BUSY.replace("= max(latest", "= later(latest"),
    },
    "import": {"+busy": "import numpy as numbers", "busy": BUSY.replace("np.", "numbers.")},
    "elsewhere": {"busy": "# TODO: your code here\nraise NotImplementedError", "+busy_check": BUSY},
    "computed": {"+idle_by_cause": "limits = [30, 2]", "idle_by_cause": BY_CAUSE.replace("30", "limits[0]")},
    "figure": {"busy": f"import plotly.express as px\npx.line(y=[1, 2]).show()\nprint('first')\n{BUSY}"},
    "timed": {
        "busy": f"%%time\n{BUSY}",
        "idle_by_cause": f"%precision 3\n{BY_CAUSE}\n%time idle_by_cause(*map(np.array, ([0], [1], [2])))",
    },
    "own_import": {"idle_by_cause": "import math\n" + BY_CAUSE.replace("30", "math.floor(30.5)")},
    "copied": {"busy": [BUSY, BUSY], "idle_by_cause": [BY_CAUSE, "# my notes"]},
    "split": {"idle_by_cause": ["mine = 30", BY_CAUSE.replace("30", "mine")], "+who_launched": "1 / 0"},
    "setup": {"setup": "import math", "busy": BUSY.replace("-np.inf", "-math.inf")},
}


def honest(released: Path, solved: dict[str, str], changes: dict[str, str | list[str]]) -> nbformat.NotebookNode:
    """The students' notebook, solved and with changes, without the cells that no exercise needs."""
    notebook = nbformat.read(released, as_version=4)
    cells = []
    for cell in notebook.cells:
        if not (name := cell.metadata.get("nbgrader", {}).get("grade_id", "")):
            continue
        cells += [new_code_cell(changes[f"+{name}"])] if f"+{name}" in changes else []
        wanted = changes.get(name, solved.get(name, cell.source))
        for source in wanted if isinstance(wanted, list) else [wanted]:
            cells.append(
                nbformat.from_dict({**cell, "source": f"{cell.source}\n{source}" if name == "setup" else source})
            )
    notebook.cells = cells
    return notebook


def right_at_home(notebook: nbformat.NotebookNode) -> dict[str, bool]:
    """Whether each exercise's check passes when the notebook is run from top to bottom."""
    ran = NotebookClient(nbformat.from_dict(notebook), timeout=300, allow_errors=True).execute()
    checks = [cell for cell in ran.cells if cell.metadata.get("nbgrader", {}).get("grade_id", "").endswith("_check")]
    failed = {cell.id: any(output.output_type == "error" for output in cell.outputs) for cell in checks}
    return {cell.metadata.nbgrader.grade_id.removesuffix("_check"): not failed[cell.id] for cell in checks}


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of namespaces is Linux's")
def test_what_is_right_at_home_gets_its_marks(tmp_path, report, capsys):
    name = "03_read_the_trace"
    assignments.make([ROOT / "notebooks" / f"{name}.ipynb"], tmp_path / "course")
    course = Course(tmp_path / "course")
    cells = nbformat.read(course.root / "source" / name / f"{name}.ipynb", as_version=4).cells
    marked = [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]
    solved = {cell.metadata.nbgrader.grade_id: cell.source for cell in marked}
    home = {}
    for student, changes in HONEST.items():
        notebook = honest(course.root / "release" / name / f"{name}.ipynb", solved, changes)
        (tmp_path / "in" / student).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / "in" / student / f"{name}.ipynb")
        home[student] = right_at_home(notebook)
    assert grading.main(["--submissions", str(tmp_path / "in"), "--course", str(course.root)]) == 0
    most = course.exercises(name)
    marks = {
        one.student: {key: exercise.points == most[key] for key, exercise in one.exercises.items()}
        for one in course.graded(name)
    }
    with capsys.disabled():
        report(notebooks=len(home), all_right_at_home=sum(all(one.values()) for one in home.values()))
    assert marks == home and all(all(one.values()) for one in home.values())
