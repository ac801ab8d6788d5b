"""The device to compute on, and the arithmetic that it does badly."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from labtrace.errors import LabkitError

OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
LESS_MEMORY = (
    "Use smaller batches or pictures; or the speed-ups 'bf16' or 'recompute', or accumulate (the same update in "
    "parts), which need less memory."
)


def pick_device(name: str | torch.device = "auto") -> torch.device:
    """The device called `name`: "cpu", "cuda", "cuda:1", or "auto" for the GPU if there is one.

    Raises:
        LabkitError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # of a kind that this PyTorch has no part for
        reason = str(error).partition(". ")[0][:100]
        raise LabkitError(
            f"device={str(name)!r}: PyTorch {torch.__version__} finds {torch.cuda.device_count()} CUDA GPUs here, and "
            f"cannot use such a device ({reason}). Use device='cpu', or install a driver and a CUDA build of PyTorch."
        ) from error
    return torch.device(name)


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Inside, cuDNN tries its algorithms for each new shape and takes the fastest, as in the public reference.

    Without it cuDNN guesses, and can take a convolution's slowest algorithm. Afterwards the flag is as before. It
    changes nothing on a CPU.
    """
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def out_of_memory(error: BaseException) -> str | None:
    """The reason in a few words if an error means that a device or the host is out of memory, otherwise None."""
    if isinstance(error, OUT_OF_MEMORY):
        return str(error).partition(". ")[0] or type(error).__name__
    # PyTorch has no class of errors for the host's memory, only this text.
    wanted = re.search(r"can't allocate memory: you tried to allocate (\d+) bytes", str(error))
    return f"the host could not give {int(wanted[1]) / 1e6:,.0f} MB more" if wanted else None


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


@torch.enable_grad()
def instance_norm_is_wrong(device: torch.device) -> bool:
    """True if on `device` the gradient of instance norm depends on the memory format of the gradient that enters it."""
    picture = torch.arange(16.0, device=device).square().view(1, 4, 2, 2).requires_grad_()
    entering = picture.detach().sin()
    gradients = [
        torch.autograd.grad(nn.functional.instance_norm(picture), picture, entering.contiguous(memory_format=layout))[0]
        for layout in (torch.contiguous_format, torch.channels_last)
    ]
    return not torch.allclose(gradients[0], gradients[1], atol=1e-3)
