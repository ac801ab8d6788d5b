"""A container for students' code: no network, little memory, and the course's packages read-only.

It has neither the notebooks with their solutions, nor other hand-ins, nor the gradebook.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import is_grade

from tools.assignments import ROOT

IMAGE = "labkit-grading"  # docker/grading/Dockerfile
PACKAGES = ("labtrace", "labkit", "labcourse", "data")
OPTIONS = (
    "--rm --pull=never --network=none --read-only --user=65534:65534 --cap-drop=ALL --security-opt=no-new-privileges "
    "--pids-limit=300 --memory=6g --tmpfs=/tmp:rw,size=1g,mode=1777 --workdir=/tmp --env=HOME=/tmp "
    "--env=PYTHONPATH=/course"
).split()
RUN = """import json, sys, nbformat, nbgrader.preprocessors
notebook = nbformat.read("/handed_in/notebook.ipynb", as_version=4)
nbgrader.preprocessors.Execute(**json.loads(sys.argv[1])).preprocess(notebook, {})
nbformat.write(notebook, "/handed_in/executed.ipynb")
"""
NO_CONTAINER = (
    f"neither podman nor docker answers with the image {IMAGE} (make grading-image), so students' code would read and "
    "change all that you can: type ISOLATION=none, in a virtual machine or as a user that has nothing to lose"
)


def engine() -> str:
    """podman or docker, which has to answer, and to have the image; raises RuntimeError if neither does."""
    for name in filter(shutil.which, ("podman", "docker")):
        if subprocess.run([name, "image", "inspect", IMAGE], capture_output=True).returncode == 0:
            return name
    raise RuntimeError(NO_CONTAINER)


def run_in_container(notebook: NotebookNode, environment: dict[str, str], settings: dict[str, Any]) -> None:
    """Run the cells of a notebook, and keep their outputs in it.

    Args:
        environment: the variables that are set there.
        settings: of nbgrader's Execute there; "timeout" in seconds for a cell.

    Raises:
        RuntimeError: no container can be had, or it ended before the notebook did.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # the user there is nobody
        nbformat.write(notebook, Path(folder, "notebook.ipynb"))
        program, name = engine(), f"labkit-{Path(folder).name}"
        options = [*OPTIONS, f"--name={name}", f"--volume={folder}:/handed_in:rw"]
        options += [f"--volume={ROOT / package}:/course/{package}:ro" for package in PACKAGES]
        options += [f"--env={name}={value}" for name, value in environment.items()]
        seconds = settings["timeout"] * (2 + sum(is_grade(cell) for cell in notebook.cells))
        command = [program, "run", *options, IMAGE, "python", "-c", RUN, json.dumps(settings)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            subprocess.run([program, "kill", name], capture_output=True)
            raise RuntimeError(f"it was stopped after {seconds} seconds") from error
        if ended.returncode:
            last_line = (ended.stderr.strip() or "its container has ended").splitlines()[-1]
            raise RuntimeError(last_line.rpartition("Error: ")[2])
        executed = nbformat.read(Path(folder, "executed.ipynb"), as_version=4)
    for cell, ran in zip(notebook.cells, executed.cells, strict=True):
        if cell.cell_type == "code":
            cell.outputs = ran.outputs
