"""`make address` writes a repository's address where readers meet it, and takes it out again."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CITATION.cff", "pyproject.toml", "docs/install.md")
CELLS = ("tools/first_cell.py", "notebooks/01_build_cyclegan.ipynb")
ADDRESS = "https://github.com/somebody/lab"


@pytest.mark.slow
def test_an_address_is_written_and_taken_out(tmp_path):
    for name in (*PAGES, CELLS[1], "Makefile", "install.mk", "tools"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")

    def texts(repo):
        command = ["make", "-o", ".venv/installed", "address", f"REPO={repo}"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        return {name: (tmp_path / name).read_text() for name in (*PAGES, *CELLS)}

    before, written, after = texts(""), texts(ADDRESS), texts("")
    assert before == after and all("OWNER/NAME" in before[name] for name in PAGES)
    assert all(ADDRESS in text for text in written.values()) and not any(
        "OWNER/NAME" in written[name] for name in PAGES
    )
