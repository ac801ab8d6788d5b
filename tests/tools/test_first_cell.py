"""The notebooks' first cell finds labkit or installs it: run as a fresh process on a made-up machine.

`python -S` leaves site-packages out, so labkit cannot be imported. A stand-in for pip and for torch's metadata lies on
PYTHONPATH: what pip would have been asked is written down, nothing is installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labcourse

TOOLS = Path(__file__).parents[2] / "tools"
CELL = (TOOLS / "first_cell.py").read_text()
CELL = re.sub(r'^REPO = "[^"]*"', 'REPO = ""', CELL, flags=re.MULTILINE)  # a fork may have filled it in
FAKE_PIP = "import json, pathlib, sys\npathlib.Path('pip.json').write_text(json.dumps(sys.argv[1:]))\n"


@pytest.fixture
def course(tmp_path):
    """The course's folder: a labkit, the script that installs it, a notebook folder and some data."""
    folder = tmp_path / "course"
    for name, text in {"labkit/__init__.py": '__version__ = "0.1.0"\n', "data/a.json": "{}", "notebooks/a": ""}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    (folder / "tools").mkdir()
    shutil.copy(TOOLS / "install_here.py", folder / "tools")
    return folder


@pytest.fixture
def run(tmp_path):
    """Run the cell in a folder; returns the process and what pip was called with (None: not called)."""
    packages = tmp_path / "packages"
    torch = packages / "torch-2.11.0+cu128.dist-info" / "METADATA"
    for path, text in {
        packages / "pip" / "__init__.py": "",
        packages / "pip" / "__main__.py": FAKE_PIP,
        packages / "torch.py": "raise AssertionError('the cell needs no torch')",
        torch: "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu128\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(folder: Path, repo: str = "", pythonpath: Path | None = None):
        folder.mkdir(exist_ok=True)
        cell = tmp_path / "cell.py"
        cell.write_text(CELL.replace('REPO = ""', f'REPO = "{repo}"'))
        path = os.pathsep.join(str(one) for one in (packages, pythonpath) if one)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(tmp_path)}
        command = [sys.executable, "-S", str(cell)]
        process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        asked = folder / "pip.json"
        return process, json.loads(asked.read_text()) if asked.exists() else None

    return run


def test_does_nothing_where_labkit_is_importable(run, course, tmp_path):
    process, asked = run(tmp_path / "elsewhere", pythonpath=course)
    assert process.stdout == f"labkit 0.1.0 from {course}\n"
    assert asked is None


def test_installs_the_clone_it_lies_in_and_replaces_no_torch(run, course):
    process, asked = run(course / "notebooks")
    assert asked == ["install", "--quiet", "-e", f"{course}[lab]", "torch==2.11.0+cu128"]
    assert process.stdout.endswith(f"labkit 0.1.0 from {course}\n")


def test_clones_the_address_it_is_told(run, course, tmp_path):
    git = ["git", "-C", str(course), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run(git + command, check=True)
    (tmp_path / "labkit").mkdir()  # beside the cell, where Python looks first: a mere folder is not the package
    process, asked = run(tmp_path / "content", repo=str(course))
    clone = tmp_path / "content" / "labkit-course"
    assert asked[3] == f"{clone}[lab]"
    assert (clone / "data" / "a.json").exists(), "pip install from the address would not have brought data/"
    assert process.stdout.endswith(f"labkit 0.1.0 from {clone}\n")


def test_says_what_to_do_when_the_course_cannot_be_cloned(run, tmp_path):
    process, asked = run(tmp_path / "content", repo="nowhere")
    assert process.returncode == 1 and asked is None
    assert process.stderr.strip().splitlines()[-1] == (
        "RuntimeError: labkit is not here: fill in REPO, its address, and run it again. "
        "git says: fatal: repository 'nowhere' does not exist"
    )


ERRORS = [
    ("/", CELL, "and run it again. git says: no network"),
    (TOOLS, CELL, "no network"),
    (TOOLS, "labcourse.check.cycle_loss(lambda *_: None)", "not None. Is a `return` missing?"),
]


@pytest.mark.parametrize(("folder", "cell", "last"), ERRORS)
def test_jupyter_shows_an_error_s_text_and_no_source(folder, cell, last, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "no network"))
    InteractiveShell(user_ns={"labcourse": labcourse}).run_cell(cell)
    shown = capsys.readouterr().out.strip()
    assert shown.endswith(last) and len(shown.splitlines()) <= 3
