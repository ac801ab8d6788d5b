"""notebooks/conftest.py: under nbval a cell fails that writes to stderr, be it Python or C that writes."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.slow

CONFTEST = Path(__file__).parents[2] / "notebooks" / "conftest.py"


def test_only_cells_that_write_to_stderr_fail(tmp_path):
    shutil.copy(CONFTEST, tmp_path)
    from_c = "n = os.write(2, b'3'); time.sleep(3)"  # a thread of the kernel reads it, and may be late
    sources = ["import os, sys, time", "print(1)", "print(2, file=sys.stderr)", from_c]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "--rootdir=.", "--color=no", "-q"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.startswith("..FF"), ran.stdout
