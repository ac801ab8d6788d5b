"""How tests are run: a cell that writes to stderr fails, be it Python or C that writes; and the two tiers."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "--rootdir=.", "--color=no", "-q"]


def write(path, sources, slow=()):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number in slow:
        cells[number].metadata["tags"] = ["slow"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def test_only_cells_that_write_to_stderr_fail(tmp_path):
    shutil.copy(ROOT / "notebooks" / "conftest.py", tmp_path)
    from_c = "n = os.write(2, b'3'); time.sleep(3)"  # a thread of the kernel reads it, and may be late
    sources = ["import os, sys, time", "print(1)", "print(2, file=sys.stderr)", from_c]
    write(tmp_path / "a.ipynb", sources)
    ran = subprocess.run(PYTEST, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.startswith("..FF"), ran.stdout


@pytest.mark.parametrize(("tier", "seen"), [("--tier=quick", "..s..s"), ("--tier=slow", ".F.."), ("-q", ".F....")])
def test_the_quick_tier_takes_quick_values_and_the_slow_one_all_that_it_left(tmp_path, tier, seen):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    write(tmp_path / "a_short.ipynb", ["n = 1  # quick: 2", "assert n == 2", "assert n == 1"], slow=[2])
    write(tmp_path / "b_whole.ipynb", ["1"])
    tests = "import pytest\n\n\ndef test_one():\n    pass\n\n\n@pytest.mark.slow\ndef test_two():\n    pass\n"
    (tmp_path / "test_c.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    ran = subprocess.run([*PYTEST, tier], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.split()[0] == seen, ran.stdout
