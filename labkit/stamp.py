"""The stamp of a result: device, versions and flags, without which a number means nothing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import torch

import labtrace.stamp
from labkit import ranks
from labkit.devices import precision


def stamp() -> dict[str, str | int | bool | None]:
    """Device, versions, and the flags that change how fast PyTorch computes, at this moment."""
    gpu = torch.cuda.is_available()
    machine = labtrace.stamp.stamp()
    return {
        **machine,
        "device": torch.cuda.get_device_name() if gpu else machine["device"],
        "threads": torch.get_num_threads(),
        "ranks": ranks.count(),
        "torch": torch.__version__,
        "torchvision": importlib.metadata.version("torchvision"),
        "cuda": torch.version.cuda if gpu else None,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32_matmul": precision("cuda", "matmul") == "tf32",
        "tf32_conv": precision("cuda", "conv") == "tf32",
        "onednn_matmul": precision("mkldnn", "matmul"),
        "onednn_conv": precision("mkldnn", "conv"),
    }


def describe(stamp: Mapping[str, Any]) -> str:
    """The device, PyTorch's version and the number of threads of a stamp, for the titles of figures."""
    threads = "1 thread" if stamp["threads"] == 1 else f"{stamp['threads']} threads"
    several = f", {stamp['ranks']} ranks" if stamp.get("ranks", 1) > 1 else ""
    return f"{stamp['device']}, torch {stamp['torch']}, {threads}{several}"
