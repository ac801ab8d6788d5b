"""The students' repository has neither solutions nor wrong answers, works, and is brought up to date without a loss."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbgrader.validator import Validator
from traitlets.config import PyFileConfigLoader

from tools import exercises, student_repo

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOLUTION = re.compile(r"### BEGIN SOLUTION(.*?)### END SOLUTION", re.DOTALL)


def release(notebooks: list[Path], course: Path) -> None:
    """What nbgrader does in tools/assignments.py, which test_assignments.py tests, without its minutes."""
    for path in notebooks:
        cleared = SOLUTION.sub("# TODO", path.read_text(encoding="utf-8"))
        (course / "release" / path.stem).mkdir(parents=True)
        (course / "release" / path.stem / path.name).write_text(cleared, encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def identity():
    """Git knows who commits, which it need not on a fresh machine."""
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "a teacher")
            patch.setenv(f"GIT_{role}_EMAIL", "teacher@example.org")
        yield


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The repository with one notebook."""
    out = tmp_path_factory.mktemp("course") / "students"
    notebook = ROOT / "notebooks" / "11_many_nodes.ipynb"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student_repo.assignments, "make", release)
        student_repo.make(out, "https://github.com/OWNER/NAME", [notebook])
    return out


def test_the_pages_that_notebooks_name_are_there(repository):
    notebooks = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("notebooks/*.ipynb"))
    pages = set(re.findall(r"\]\(\.\./([\w/.]+)", notebooks)) - {"docs/gallery.md"}  # a sentence that exercises lack
    assert pages and not [page for page in pages if not (repository / page).exists()]


def test_it_has_no_solution_and_nothing_for_teachers(repository):
    tracked = subprocess.run(["git", "-C", repository, "ls-files"], check=True, capture_output=True, text=True)
    names = tracked.stdout.splitlines()
    assert not [name for name in names if name.startswith(("tests/", "notebooks/", "TEACHING", "tools/wrong_answers"))]
    answers = SOLUTION.findall((ROOT / "notebooks" / "11_many_nodes.ipynb").read_text(encoding="utf-8"))
    exercise = (repository / "exercises" / "11_many_nodes.ipynb").read_text(encoding="utf-8")
    assert answers and not [answer for answer in answers if answer in exercise]


def test_assistants_and_students_learn_the_rules(repository):
    assert (repository / "CLAUDE.md").read_text(encoding="utf-8").strip() == "@AGENTS.md"
    assert (repository / "AGENTS.md").exists()
    notebook = nbformat.read(repository / "exercises" / "11_many_nodes.ipynb", as_version=4)
    assert student_repo.ASSISTANTS in notebook.cells[0].source


def test_notebooks_know_the_address(repository):
    notebook = json.loads((repository / "exercises" / "11_many_nodes.ipynb").read_text())
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    colab = "(https://colab.research.google.com/github/OWNER/NAME/blob/main/exercises/11_many_nodes.ipynb)"
    assert colab in sources[0] and colab in (repository / "README.md").read_text()
    assert 'REPO = "https://github.com/OWNER/NAME"' in sources[1]
    assert (repository / "tools" / "install_here.py").exists(), "the first cell runs it after it has cloned"
    assert (repository / "tools" / "install.sh").exists(), "install.mk runs it"
    assert (repository / "tools" / "jupyter" / "nbgrader_config.py").exists(), "install.mk names the folder"


def test_a_second_release_is_a_commit_more(repository, monkeypatch):
    notebook = [ROOT / "notebooks" / "11_many_nodes.ipynb"]
    monkeypatch.setattr(student_repo, "exercises", lambda notebooks, folder, repo: shutil.copy(notebooks[0], folder))
    for _ in range(2):  # the second time nothing has changed
        student_repo.make(repository, "", notebook)
    assert student_repo.git(repository, "rev-list", "--count", "HEAD") == "2"
    for ignored in ("student/01.ipynb", ".venv/pyvenv.cfg", "exercises/.ipynb_checkpoints/01.ipynb"):
        (repository / ignored).parent.mkdir(parents=True, exist_ok=True)
        (repository / ignored).write_text("mine")
    student_repo.make(repository, "", notebook)
    assert {(repository / name).read_text() for name in ("student/01.ipynb", ".venv/pyvenv.cfg")} == {"mine"}
    (repository / "mine.txt").write_text("notes")
    with pytest.raises(SystemExit, match="changes that are not committed"):
        student_repo.make(repository, "", notebook)


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(SystemExit, match="holds something else"):
        student_repo.make(tmp_path, "", [])
    assert (tmp_path / "thesis.tex").read_text() == "..."


def notebook(path: Path, *cells: tuple[str, str], locked: str = "") -> None:
    """Write a notebook of code cells, each an id and its source."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, id=name) for name, source in cells])
    for cell in made.cells:
        if cell.id == locked:
            cell.metadata["nbgrader"] = {"locked": True}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(made, path)


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def test_validate_takes_copied_and_split_cells(tmp_path, monkeypatch):
    path = tmp_path / "mine.ipynb"
    notebook(path, ("a", "# my notes"), ("b", "x = 2"), ("c", "assert x == 2"), ("d", "assert x == 3"))
    mine = nbformat.read(path, as_version=4)
    for cell, name in zip(mine.cells, ("x", "x", "right", "wrong"), strict=True):
        of_check = name != "x"
        marks = {"grade_id": name, "solution": not of_check, "grade": of_check, "locked": of_check, "task": False}
        cell.metadata["nbgrader"] = {**marks, "points": 1, "schema_version": 3}
    nbformat.write(mine, path)
    monkeypatch.setattr(Validator.preprocessors, "default_args", Validator.preprocessors.default_args)
    config = PyFileConfigLoader(str(ROOT / "tools" / "jupyter" / "nbgrader_config.py")).load_config()
    failed = Validator(config=config).validate(str(path))["failed"]
    assert [cell["source"] for cell in failed] == ["assert x == 3"]


def test_copies_are_updated_with_everything_that_was_written(tmp_path):
    ours, student = tmp_path / "exercises", tmp_path / "student"
    notebook(ours / "a.ipynb", ("text", "old text"), ("guess", "guess = None"), ("f", "# TODO"), ("check", "check(f)"))
    assert len(exercises.begin(ours, student)) == 1
    written = [("text", "old text"), ("mine", "# my note"), ("guess", "guess = 3"), ("f", "right"), ("check", "cheat")]
    notebook(student / "a.ipynb", *written)
    assert exercises.begin(ours, student) == [] and sources(student / "a.ipynb")[3] == "right"

    new = [("text2", "new text"), ("guess2", "guess = ..."), ("f", "# TODO 2"), ("check", "check(f)"), ("end", "bye")]
    notebook(ours / "a.ipynb", *new, locked="check")
    (told,) = exercises.begin(ours, student)
    assert told.startswith("updated") and "a_before_update_1.ipynb" in told
    assert sources(student / "a_before_update_1.ipynb") == [source for _, source in written]
    updated = sources(student / "a.ipynb")
    assert set(updated) == {"new text", "# my note", "guess = 3", "guess = ...", "right", "check(f)", "bye"}
    assert "old text" not in updated, "it was not the student's"
    assert exercises.begin(ours, student) == [], "once"


def test_a_notebook_that_was_not_begun_here_is_left_alone(tmp_path):
    ours, student = tmp_path / "release", tmp_path / "student"
    ours.mkdir()
    notebook(ours / "a" / "a.ipynb", ("f", "# TODO"))
    notebook(student / "a.ipynb", ("f", "mine"))
    assert exercises.begin(ours, student) == [] and sources(student / "a.ipynb") == ["mine"]


def test_whoever_is_unknown_to_git_learns_so_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_NAME", "")
    with pytest.raises(SystemExit, match="git var.*empty ident name"):
        student_repo.make(tmp_path / "students", "", [])
    assert not (tmp_path / "students").exists()
