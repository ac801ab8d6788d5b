"""Work in a process of its own, so that what it leaves behind in a process is not in the way of what comes after."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError


def apart(function: Callable, *arguments: Any) -> Any:
    """``function(*arguments)``, run by another Python; the function is one of a module, so that it can be found there.

    For recordings on a GPU: CUPTI, which watches the GPU for the profiler, stays loaded once it was used, and before
    CUDA 13.1 Update 1 it gives the kernels of CUDA graphs wrong correlation ids in every recording of a process but
    the first (NVIDIA's release notes of CUPTI).

    Raises:
        LabkitError: the other process ended without an answer. What the function raises is raised here.
    """
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "question"), Path(folder, "answer")
        question.write_bytes(pickle.dumps((function, arguments)))
        found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # what can be imported here can be there
        ended = subprocess.run([sys.executable, "-m", __name__, question, answer], env=found)
        if not answer.exists():
            raise LabkitError(f"{function.__name__}: its process ended early, with exit status {ended.returncode}.")
        value, error = pickle.loads(answer.read_bytes())
    if error is not None:
        raise error
    return value


def _answer(question: Path, answer: Path) -> None:
    function, arguments = pickle.loads(question.read_bytes())
    try:
        result = function(*arguments), None
    except Exception as error:
        result = None, error
    answer.write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    _answer(*map(Path, sys.argv[1:]))
