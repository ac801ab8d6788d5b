"""The device to compute on, and the arithmetic that it does badly."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from labkit.errors import LabkitError

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
LESS_MEMORY = (
    "Use smaller batches or pictures; or the speed-ups 'bf16' or 'recompute', or accumulate (the same update in "
    "parts), which need less memory."
)
# PyTorch's switches for the precision of float32 products, each after the one that it follows if it is not set itself
CUDNN = [("cuda", "conv"), ("cuda", "rnn")]
SWITCHES = [("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), *CUDNN]
SWITCHES += [("mkldnn", part) for part in ("all", "matmul", "conv", "rnn")]
# PyTorch's errors for a device that is not there, or that it cannot use.
UNUSABLE = (RuntimeError, AssertionError, ModuleNotFoundError)


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """The device called `name`: "cpu", "cuda", "cuda:1", or "auto" for a CUDA GPU if one works, otherwise the CPU.

    "auto" warns if there is a GPU that does not work, and says why. So does a device on which labkit was never tried.

    Raises:
        LabkitError: there is no such device here, or PyTorch cannot compute on it.
    """
    if name == "auto":
        device, reason = best_device()
        if reason:
            warnings.warn(f"computing on the CPU: {reason}.", stacklevel=1)  # at this line: said once a process
        return device
    try:
        device = torch.device(name)
        if device.type != "cpu":
            convolve(device)
    except UNUSABLE as error:
        raise LabkitError(
            f"device={str(name)!r}: {why_unusable(error, name)}. Use device='cpu', or ask `labkit doctor`."
        ) from error
    if device.type not in ("cpu", "cuda"):
        warnings.warn(f"labkit was never tried on the device {device.type!r}: check its results.", stacklevel=1)
    return device


@functools.cache
def best_device() -> tuple[torch.device, str]:
    """The device that "auto" means, and the reason why it is the CPU, or "" if no NVIDIA GPU is there to be used."""
    try:
        convolve("cuda")
    except UNUSABLE as error:
        return torch.device("cpu"), why_unusable(error) if nvidia_gpus() else ""
    return torch.device("cuda"), ""


def convolve(device: str | torch.device) -> float:
    """9, computed on the device: a GPU can be there, and yet PyTorch have no kernels for it."""
    ones = torch.ones(1, 1, 3, 3, device=device)
    return nn.functional.conv2d(ones, ones).item()


def why_unusable(error: Exception, device: str | torch.device = "cuda") -> str:
    """The reason why PyTorch cannot compute on a device, from the error that it raised, and what to do."""
    text, torch_here = str(error), f"PyTorch {torch.__version__}"
    if not str(device).startswith(("cpu", "cuda")):
        return f"{torch_here} cannot compute on it here"
    another = "install another one, see 'GPUs' in docs/install.md"
    if "not compiled with CUDA" in text:
        return f"{torch_here} is built without CUDA; {another}"
    if "NVIDIA driver on your system is too old" in text:
        return f"the driver is too old for CUDA {torch.version.cuda}, which {torch_here} needs; update it, or {another}"
    if "no kernel image" in text:
        kernels = ", ".join(torch.cuda.get_arch_list())
        return f"{torch_here} has no kernels for {describe_gpu(device)}, only for {kernels}; {another}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "No CUDA GPUs are available" in text and hidden is not None:
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides the GPU"
    return text.partition("\n")[0].partition(". ")[0][:100]


def describe_gpu(device: str | torch.device) -> str:
    """A GPU's name and architecture: "Tesla T4 (sm_75)"."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"{torch.cuda.get_device_name(device)} (sm_{major}{minor})"


def nvidia_gpus() -> list[str]:
    """Name and driver version of each NVIDIA GPU of this machine, usable or not: "Tesla T4, 580.82.07"."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


@contextmanager
def flags(tf32: str = "") -> Iterator[None]:
    """Sets TF32 "on", "off" or, as "default", as PyTorch has it; "" leaves it. Afterwards all flags are as before.

    It sets PyTorch's newer switches, ``fp32_precision``, which the older ones set as well. One that was never set
    follows the one above it. So it begins with the topmost: a switch that does not follow it was set, to what it says,
    and is set to that again in the end. "on" and "off" are for oneDNN on processors, too.

    Inside, cuDNN tries its algorithms for each new shape and takes the fastest, as in the public reference. Without
    that it guesses, and can take a convolution's slowest algorithm. It changes nothing on a CPU.
    """
    before, benchmark = dict[tuple[str, str], str](), torch.backends.cudnn.benchmark
    for switch in SWITCHES if tf32 else ():
        wanted = {"on": "tf32", "off": "ieee"}.get(tf32) or ("tf32" if switch in CUDNN else "none")
        if (now := torch._C._get_fp32_precision_getter(*switch)) != wanted:
            before[switch] = now
            torch._C._set_fp32_precision_setter(*switch, wanted)
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        for switch in reversed(before):
            torch._C._set_fp32_precision_setter(*switch, before[switch])


def precision(library: str, part: str) -> str:
    """What PyTorch may round float32 numbers to before it multiplies them: "tf32", "bf16" or, for no rounding, "ieee".

    It does so where the device has units for that, whichever of its older and newer switches were set.

    Args:
        library: "cuda" for cuBLAS and cuDNN, "mkldnn" for oneDNN on processors.
        part: "matmul" or "conv".
    """
    return torch._C._get_fp32_precision_getter(library, part).replace("none", "ieee")


cudnn_benchmark = flags  # without an argument it sets no more


def out_of_memory(error: BaseException) -> str | None:
    """The reason in a few words if an error means that a device or the host is out of memory, otherwise None."""
    if isinstance(error, OUT_OF_MEMORY):
        return str(error).partition(". ")[0] or type(error).__name__
    # PyTorch has no class of errors for the host's memory, only these texts. The second one is oneDNN's, whose "could
    # not create a primitive descriptor" means something else.
    if wanted := re.search(r"(?:can't allocate|not enough) memory: you tried to allocate (\d+) bytes", str(error)):
        return f"the host could not give {int(wanted[1]) / 1e6:,.0f} MB more"
    return str(error) if re.fullmatch("could not create a (primitive|memory( object)?)", str(error)) else None


def emulates(dtype: torch.dtype) -> bool:
    """True if this processor has no units for arithmetic in a 16-bit type, so that it is slower than float32.

    PyTorch and oneDNN then convert each number to float32 and back, or compute without oneDNN.
    """
    if platform.machine() in ("x86_64", "AMD64"):
        if dtype == torch.bfloat16:  # oneDNN says that it supports bfloat16 on every processor with AVX-512
            return not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
        return not torch.ops.mkldnn._is_mkldnn_fp16_supported()
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    return not (torch.backends.mkldnn.is_available() and getattr(torch.ops.mkldnn, asked)())
