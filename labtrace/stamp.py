"""The stamp of a result: on what machine and with what version it was made. labkit.stamp adds PyTorch's part."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path

import labtrace


def stamp() -> dict[str, str | None]:
    """Date, version, commit, processor and Python's version, at this moment."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "labkit": labtrace.__version__,
        "commit": _commit(),
        "device": _processor(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    """The processor's name where the system provides it (Linux), else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of this labkit, if it runs from a clone, with a + if a file of it has changed since."""
    clone = Path(__file__).parents[1]
    if not (clone / ".git").exists():  # an installed labkit may lie inside another project's clone
        return None
    git = ["git", "-C", str(clone), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
