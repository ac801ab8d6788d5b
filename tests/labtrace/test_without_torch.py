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
EXTRAS = [re.split(r"[<>[]", line)[0] for extra in PROJECT["optional-dependencies"].values() for line in extra]
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


def test_the_doctor_says_that_pytorch_is_missing(bare):
    done = bare("doctor")
    assert done.returncode == 1 and "- PyTorch: pip install 'cyclegan-lab[train]'" in done.stdout, done


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train --out run", "train"),
        ("profile --out trace.json", "train"),
        ("compare", "train"),
        ("speedups", "train"),
        ("translate a.png b.png --run run", "train"),
        ("export a.pt2 --run run", "train"),
        ("export a.onnx --run run", "export"),
        ("export a.safetensors --run run", "export"),
        ("score a b", "score"),
        ("sweep --lr 1e-4:1e-3", "lab"),
        ("speedrun entry.py", "train"),
    ],
)
def test_a_command_that_needs_more_names_the_one_extra_that_suffices(bare, command, extra):
    done = bare(*command.split())
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f", which this command needs: pip install 'cyclegan-lab[{extra}]'" in done.stderr
