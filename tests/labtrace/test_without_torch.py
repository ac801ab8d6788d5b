"""labtrace needs nothing of an extra, so no PyTorch and no Jupyter: every table and view, and the report."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import synthetic_trace

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
TABLES = """
import importlib, pkgutil
import labtrace
for module in pkgutil.walk_packages(labtrace.__path__, "labtrace."):
    if module.name.split(".")[-1] not in ("__main__", "explorer", "widgets"):  # widgets are of notebooks
        importlib.import_module(module.name)
from labtrace.show.views import VIEWS
trace = labtrace.Trace(sys.argv[1])
for table in "summary audit remedies temporal idle gaps kernels queue concurrency ranges operators".split():
    assert len(getattr(trace, table)()) or table == "audit", table
for view in set(VIEWS) - {"achieved", "hta", "processor"}:  # they need shapes, HTA itself, no GPU
    labtrace.show.trace(trace, view)
labtrace.replay.trace_file.write_trace(trace.what_if(host=0.5), sys.argv[1] + "_faster.json")
"""
RUN = """
import labkit.cli, labcourse.cli
for command in COMMANDS:
    sys.argv = ["labkit", *command.split()]
    try:
        (labcourse if "speedrun" in command else labkit).cli.main()
    except SystemExit as ended:
        print(ended.code or 0, file=sys.stderr)
"""
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
MODULES = {"pillow": "PIL", "traceinsight": "hta", "torch-fidelity": "torch_fidelity", "pre-commit": "pre_commit"}
EXTRAS = [re.split(r"[<>[]", line)[0] for extra in PROJECT["optional-dependencies"].values() for line in extra]
BLOCKED = ["IPython", *(MODULES.get(name, name) for name in EXTRAS)]


# Commands that need an extra, by the one that suffices.
NEEDS = {
    "train": ["train --out run", "profile --out trace.json", "compare", "speedups", "export a.pt2 --run run"],
    "export": ["export a.onnx --run run", "export a.safetensors --run run"],
    "score": ["score a b"],
    "lab": ["sweep --lr 1e-4:1e-3"],
}
NEEDS["train"] += ["translate a.png b.png --run run", "speedrun entry.py"]


TRAIN = "pip install torch torchvision pillow tqdm filelock"  # cyclegan-lab itself is on no index


def bare(program, commands, *arguments):
    """Runs a program, and after it commands of labkit's, in one process where no extra is installed."""
    program = f"BLOCKED, COMMANDS = {BLOCKED}, {commands}\n{BLOCKER}{program}{RUN}"
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.slow
def test_labtrace_and_labkit_report_work_without_any_extra(tmp_path):
    path = synthetic_trace.two_streams().save(tmp_path / "trace.json")
    done = bare(TABLES, [f"report {path}"], str(path))
    assert done.stderr == "0\n" and (tmp_path / "trace.html").exists() and "trace.html" in done.stdout, done.stderr


def test_the_doctor_says_that_pytorch_is_missing():
    done = bare("", ["doctor"])
    said = f"To do: No module named 'torch', which training needs: {TRAIN}\n"
    assert done.stderr == "1\n" and said in done.stdout and "\nPyTorch  " in done.stdout, done


def test_a_command_that_needs_more_names_the_one_extra_that_suffices():
    needs = [(command, extra) for extra, commands in NEEDS.items() for command in commands]
    said = bare("", [command for command, _ in needs]).stderr.splitlines()
    assert said[1::2] == ["1"] * len(needs), said
    for message, (_, extra) in zip(said[::2], needs, strict=True):
        last = re.split(r"[<>[;]", PROJECT["optional-dependencies"][extra][-1])[0]
        assert message.endswith(f" {last}") and f", which this command needs: {TRAIN}" in message


NAMES = {"labkit.CycleGAN": ("torch", TRAIN), "labtrace.show.trace_explorer": ("ipywidgets", f"{TRAIN} jupyterlab ")}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_that_needs_more_says_how_to_install_it(name):
    module, command = NAMES[name]
    program = f"import labkit, labtrace\ntry:\n    {name}\nexcept ImportError as error:\n    print(error)\n"
    assert f"No module named '{module}', which {name} needs: {command}" in bare(program, []).stdout
