"""The stamp of a result: device, versions and flags, without which a number means nothing."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import labkit
from labkit import ranks


def stamp() -> dict[str, str | int | bool | None]:
    """Device, versions, and the flags that change how fast PyTorch computes, at this moment."""
    gpu = torch.cuda.is_available()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "labkit": labkit.__version__,
        "commit": _commit(),
        "device": torch.cuda.get_device_name() if gpu else _processor(),
        "threads": torch.get_num_threads(),
        "ranks": ranks.count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": importlib.metadata.version("torchvision"),
        "cuda": torch.version.cuda if gpu else None,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_conv": torch.backends.cudnn.allow_tf32,
    }


def describe(stamp: Mapping[str, Any]) -> str:
    """The device, PyTorch's version and the number of threads of a stamp, for the titles of figures."""
    threads = f"{stamp['threads']} thread{'s' * (stamp['threads'] != 1)}"
    several = f", {stamp['ranks']} ranks" if stamp.get("ranks", 1) > 1 else ""
    return f"{stamp['device']}, torch {stamp['torch']}, {threads}{several}"


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
