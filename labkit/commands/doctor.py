"""The command that looks at the machine: `labkit doctor`."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

import labtrace.stamp
from labtrace.lazy import needs

NOTEBOOK = 1.8e9  # bytes of memory that the largest notebook needs


class Row(NamedTuple):
    """A row of the table.

    Args:
        name, found: what it is about, and what is here.
        advice: how to fix it, if something is wrong.
        fault: whether PyTorch or a GPU cannot be used because of it.
    """

    name: str
    found: str
    advice: str = ""
    fault: bool = False


def doctor() -> None:
    """Say what labkit finds on this machine, and how to fix what is wrong.

    The exit status is 1 if PyTorch does not work, or not on a GPU that is here. No GPU is no fault.
    """
    rows = [*_machine(), *_pytorch()]
    width = max(len(row.name) for row in rows)
    typer.echo("\n".join(f"{row.name:{width}}  {row.found}" for row in rows))
    if advised := [row for row in rows if row.advice]:
        typer.echo("\nTo do:\n" + "\n".join(f"- {row.name}: {row.advice}" for row in advised))
    raise typer.Exit(int(any(row.fault for row in rows)))


def _machine() -> Iterator[Row]:
    stamp = labtrace.stamp.stamp()
    yield Row("labkit", f"{stamp['labkit']}, {Path(labtrace.__file__).parents[1]}")
    yield Row("Python", f"{stamp['python']}, {sys.executable}")
    yield Row("system", platform.platform())
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    yield Row("processor", f"{stamp['device']}, {cores} cores")
    if sys.platform == "linux":
        available = 1024 * int(re.findall(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[0])
        advice = f"a notebook needs up to {NOTEBOOK / 1e9} GB: close other programs" if available < NOTEBOOK else ""
        yield Row("memory", f"{available / 1e9:.1f} GB available", advice)


def _pytorch() -> Iterator[Row]:
    try:
        import torch
        import torchvision  # noqa: F401  # it fails to load if it comes from another index than PyTorch

        from labkit import devices
    except (ImportError, OSError, RuntimeError) as error:
        again = "install torch and torchvision again, both from one index"
        yield Row("PyTorch", str(error), needs(error, "training") or again, True)
        return
    version = f"{torch.__version__}, built for CUDA: {torch.version.cuda or 'none'}"
    yield Row("PyTorch", f"{version}; threads: {torch.get_num_threads()}")
    yield Row("cpu", f"convolution of nine ones: {devices.convolve('cpu'):g}")
    there = devices.nvidia_gpus()
    yield Row("GPU, driver", "; ".join(there) or "no NVIDIA GPU found")
    for gpu in [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cuda"] * bool(there):
        try:
            result, gb = devices.convolve(gpu), torch.cuda.get_device_properties(gpu).total_memory / 1e9
        except devices.UNUSABLE as error:
            reason = devices.why_unusable(error, gpu)
            yield Row(gpu, "cannot be used", reason, fault=not reason.startswith("CUDA_VISIBLE_DEVICES"))
        else:
            yield Row(gpu, f"{devices.describe_gpu(gpu)}, {gb:.0f} GB, convolution of nine ones: {result:g}")
