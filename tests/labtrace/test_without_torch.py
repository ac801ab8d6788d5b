"""labtrace needs nothing of an extra, so no PyTorch and no Jupyter: every table and view, and the report."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import synthetic_trace

PROGRAM = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import labtrace
for module in pkgutil.walk_packages(labtrace.__path__, "labtrace."):
    if module.name.split(".")[-1] not in ("__main__", "explorer", "widgets"):  # widgets are of notebooks
        importlib.import_module(module.name)
from labtrace.show.views import VIEWS
trace = labtrace.Trace(sys.argv[1])
for table in (
    "summary audit remedies temporal idle gaps kernels launches queue concurrency critical_path ranges operators"
).split():
    assert len(getattr(trace, table)()) or table == "audit", table
for view in set(VIEWS) - {"achieved", "hta", "processor"}:  # they need shapes, HTA itself, no GPU
    labtrace.show.trace(trace, view)
labtrace.replay.write_trace(labtrace.replay.what_if(trace, host=0.5), sys.argv[1] + "_faster.json")
import labkit.cli, labcourse.cli
sys.argv = ["labkit", *COMMAND]
(labcourse if COMMAND[0] == "speedrun" else labkit).cli.main()
"""
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
MODULES = {"pillow": "PIL", "traceinsight": "hta", "torch-fidelity": "torch_fidelity", "pre-commit": "pre_commit"}
EXTRAS = [re.split("[<>]", line)[0] for extra in PROJECT["optional-dependencies"].values() for line in extra]
BLOCKED = ["IPython", *(MODULES.get(name, name) for name in EXTRAS)]


@pytest.fixture
def bare(tmp_path):
    """A function that runs a command of labkit's where no extra is installed, after every table was made."""
    path = synthetic_trace.two_streams().save(tmp_path / "trace.json")

    def run(*command):
        program = f"BLOCKED, COMMAND = {BLOCKED}, {[*map(str, command)]}\n{PROGRAM}"
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, str(path)], capture_output=True, text=True
        )

    return run


def test_labtrace_and_labkit_report_work_without_any_extra(bare, tmp_path):
    done = bare("report", tmp_path / "trace.json")
    assert done.returncode == 0 and (tmp_path / "trace.html").exists() and "trace.html" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["train", "profile", "compare", "speedups", "speedrun"])
def test_a_command_that_needs_more_names_its_extra(bare, tmp_path, command):
    words = {"speedups": [], "speedrun": [tmp_path / "entry.py"]}.get(command, ["--out", tmp_path / "out.json"])
    done = bare(command, *words)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "No module named 'torch', which this command needs: pip install 'labkit[train]'" in done.stderr
