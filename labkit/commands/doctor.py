"""The command that looks at the machine: `labkit doctor`."""

import platform
import sys
from pathlib import Path

import typer

import labtrace.stamp
from labtrace.lazy import needs


def doctor() -> None:
    """Say what labkit finds on this machine, and how to fix what is wrong.

    The exit status is 1 if PyTorch does not work, or not on a GPU that is here. No GPU is no fault.
    """
    stamp, advice = labtrace.stamp.stamp(), ""
    rows = {
        "labkit": f"{stamp['labkit']}, {Path(labtrace.__file__).parents[1]}",
        "Python": f"{stamp['python']}, {sys.executable}",
        "system": platform.platform(),
        "processor": f"{stamp['device']}, {labtrace.stamp.cores()} cores",
    }
    try:
        import torch
        import torchvision  # noqa: F401  # it fails to load if it comes from another index than PyTorch

        from labkit import devices
    except (ImportError, OSError, RuntimeError) as error:
        rows["PyTorch"] = str(error)
        advice = needs(error, "training") or "install torch and torchvision again, both from one index"
    else:
        rows["PyTorch"] = f"{torch.__version__}, built for CUDA: {torch.version.cuda or 'none'}"
        rows["GPU, driver"] = "; ".join(devices.nvidia_gpus()) or "no NVIDIA GPU found"
        device, advice = devices.best_device()
        which = devices.describe_gpu(device) if device.type == "cuda" else "the CPU"
        rows["computes on"] = f"{which}; a convolution of nine ones: {devices.convolve(device):g}"
    typer.echo("\n".join(f"{name:{max(map(len, rows))}}  {found}" for name, found in rows.items()))
    if advice:
        typer.echo(f"\nTo do: {advice}")
    raise typer.Exit(int(bool(advice) and not advice.startswith("CUDA_VISIBLE_DEVICES")))
