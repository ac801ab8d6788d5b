"""Kernels in C++ for processors: how they are compiled and called, and their products of matrices."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.variants.compile import compiler

C_TYPES: dict[type, Any] = {int: ctypes.c_int64, float: ctypes.c_double}
SOURCE = Path(__file__).with_name("winograd.cpp")
INSTRUCTIONS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}  # by PyTorch's name of what the processor has


def products(left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor:
    """Products (P, M, N) of matrices, or `total` with these added.

    Args:
        left: (P, M, K), or the transposed of (P, K, M); contiguous in memory.
        right: (P, K, N), contiguous.

    PyTorch's products are MKL's. On processors with AVX-512 that Intel did not make, MKL runs kernels for AVX2, and our
    own are used, if N is a multiple of 32: other columns do not fill their registers.
    """
    if not own_products() or right.shape[2] % 32:
        return torch.bmm(left, right) if total is None else total.baddbmm_(left, right)
    (count, m, k), (_, down, along), n = left.shape, left.stride(), right.shape[2]
    made = left.new_empty(count, m, n) if total is None else total
    run_kernel("products", left, right, made, count, m, k, n, down, along, int(total is not None))
    return made


@functools.cache
def own_products() -> bool:
    """Whether products of matrices by winograd.cpp are faster on this processor than PyTorch's."""
    return bool(library().products_pay())


def can_compile() -> bool:
    """Whether this machine can compile kernels for its processor."""
    return sys.platform == "linux" and compiler() is not None


def run_kernel(kernel: str, *arguments: Tensor | int | float) -> None:
    """Runs a kernel of winograd.cpp on contiguous tensors of one type."""
    double = any(isinstance(one, Tensor) and one.dtype == torch.float64 for one in arguments)
    call(getattr(library(), f"{kernel}_{'double' if double else 'float'}"), *arguments)


def call(function: Any, *arguments: Tensor | int | float) -> None:
    """Calls a compiled function of contiguous tensors, then of numbers, then of how many threads PyTorch has."""
    addresses = [ctypes.c_void_p(one.data_ptr()) for one in arguments if isinstance(one, Tensor)]
    numbers = [C_TYPES[type(one)](one) for one in arguments if not isinstance(one, Tensor)]
    function(*addresses, *numbers, ctypes.c_int(torch.get_num_threads()))


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled kernels of winograd.cpp. Raises a LabkitError as `compiled` does."""
    return compiled(SOURCE.read_text(encoding="utf-8"))


def compiled(source: str) -> ctypes.CDLL:
    """A program in C++. The first time it is compiled, in a few seconds, and kept in the user's folder for caches.

    Where there is no such folder, or it cannot be written, each process compiles it in a temporary one.

    Raises:
        LabkitError: it cannot be compiled.
    """
    instructions = INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), "native")
    options = f"-O3 -march={instructions} -fno-trapping-math -fopenmp -std=c++17 -shared -fPIC -x c++ -"
    command = [str(compiler()), *options.split()]
    key = hashlib.sha256((source + " ".join(command)).encode()).hexdigest()[:16]
    with ExitStack() as stack:
        try:
            kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "labkit", f"kernels-{key}.so")
            if kept.exists():
                return ctypes.CDLL(str(kept))
            kept.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(TemporaryDirectory(dir=kept.parent))
        except (OSError, RuntimeError):  # RuntimeError: this user has no home
            kept, folder = None, stack.enter_context(TemporaryDirectory())
        made = Path(folder, "kernels.so")
        done = subprocess.run([*command, "-o", str(made)], input=source, capture_output=True, text=True)
        if done.returncode:
            raise LabkitError(f"the kernels in C++ cannot be compiled: {done.stderr[-500:]}")
        kernels = ctypes.CDLL(str(made))
        if kept is not None:
            made.replace(kept)
        return kernels
