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
from labtrace.cli import install

NOTEBOOK = 1.8e9  # bytes of memory that the largest notebook needs


class Row(NamedTuple):
    """A row of the table.

    Args:
        name, found: what it is about, and what is here.
        advice: how to mend it, if something is wrong.
        fault: whether PyTorch or a GPU cannot be used because of it.
    """

    name: str
    found: str
    advice: str = ""
    fault: bool = False


def doctor() -> None:
    """Say what labkit finds on this machine, and how to mend what is wrong.

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
        kilobytes = dict(re.findall(r"(\w+): +(\d+) kB", Path("/proc/meminfo").read_text()))
        available, limit = 1024 * int(kilobytes["MemAvailable"]), Path("/sys/fs/cgroup/memory.max")
        if limit.exists() and (allowed := limit.read_text().strip()).isdigit():
            available = min(available, int(allowed))
        advice = f"a notebook needs up to {NOTEBOOK / 1e9} GB: close other programs" if available < NOTEBOOK else ""
        yield Row("memory", f"{available / 1e9:.1f} GB available", advice)


def _pytorch() -> Iterator[Row]:
    try:
        import torch
        import torchvision  # noqa: F401  # it fails to load if it comes from another index than PyTorch

        from labkit import devices
        from labkit.variants.compile import compiler
    except ModuleNotFoundError as error:
        yield Row("PyTorch", str(error), install("train"), fault=True)
        return
    except (ImportError, OSError, RuntimeError) as error:
        yield Row("PyTorch", str(error), "install torch and torchvision again, both from one index", fault=True)
        return
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    yield Row("PyTorch", f"{torch.__version__}, built for {build}; threads: {torch.get_num_threads()}")
    types = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    units = [f"{name} {'emulated' if devices.emulates(kind) else 'in hardware'}" for name, kind in types.items()]
    yield Row("cpu", ", ".join([f"convolution of nine ones: {devices.convolve('cpu'):g}", *units]))
    there = devices.nvidia_gpus()
    yield Row("GPU, driver", "; ".join(there) or "no NVIDIA GPU found")
    for gpu in [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cuda"] * bool(there):
        try:
            result, memory = devices.convolve(gpu), torch.cuda.get_device_properties(gpu).total_memory
        except devices.UNUSABLE as error:
            reason = devices.why_unusable(error, gpu)
            yield Row(gpu, "cannot be used", reason, fault=not reason.startswith("CUDA_VISIBLE_DEVICES"))
        else:
            found = f"{devices.describe_gpu(gpu)}, {memory / 1e9:.0f} GB, convolution of nine ones: {result:g}"
            yield Row(gpu, found)
    advice = "" if compiler() else "install g++, if you want the speed-up 'compile' on a CPU"
    yield Row("compiler", compiler() or "none for C++", advice)
