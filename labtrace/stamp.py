"""The stamp of a result: the machine and the version that made it. `labkit.stamp` adds PyTorch's part."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import labtrace

if TYPE_CHECKING:
    import pandas


def stamp() -> dict[str, str | None]:
    """Date, version, commit, processor and Python's version, at this moment."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "labkit": labtrace.__version__,
        "commit": _commit(),
        "device": _processor(),
        "python": platform.python_version(),
    }


def cores() -> int:
    """How many of the processor's cores this process may use, if the ranks on this machine share them."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, allowed // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def waited_for_core() -> list[float]:
    """How many seconds this thread has been ready to work, while others had the cores. Empty where nobody knows."""
    with suppress(OSError, ValueError), open("/proc/thread-self/schedstat") as file:  # of Linux
        worked, waited, _ = map(int, file.read().split())
        return [waited / 1e9] if worked else []
    return []


def _processor() -> str:
    """The processor's name where the system provides it (Linux), else its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the clone that this runs from, with a + if a file has changed since, or None if it is installed."""
    clone = Path(__file__).parents[1]
    if not (clone / ".git").exists():  # an installed package may lie inside another project's clone
        return None
    git = ["git", "-C", str(clone), "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def with_stamp(table: pandas.DataFrame, stamp: dict | None, *others: dict | None) -> pandas.DataFrame:
    """The table with this stamp in its `attrs`, marked if it or one of the others is that of a simulation."""
    simulated = any("SIMULATED" in one for one in (stamp, *others) if one)
    if stamp or simulated:
        table.attrs["stamp"] = {**(stamp or {}), **({"SIMULATED": True} if simulated else {})}
    if simulated:
        table.columns.name = "SIMULATED"  # in the corner of the table, wherever it is shown
    return table
