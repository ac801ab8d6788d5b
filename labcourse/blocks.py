"""Triton's language on NumPy, as far as the lessons use it: kernels run anywhere, and no use of memory goes unseen.

A kernel is written as for Triton, with this module in the place of ``triton.language``: ``from labcourse import
blocks as tl``. `launch` runs its programs one after another. Unlike a GPU, it refuses any place outside of a tensor,
and notes each place that a program loads or stores. `in_triton` hands the same kernel to Triton itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy import maximum as maximum
from numpy import sqrt as sqrt
from numpy import sum as sum
from numpy import where as where
from torch import Tensor

from labkit.errors import LabkitError

constexpr = int  # marks an argument that is known when Triton compiles the kernel
DOES = {"load": "reads", "store": "writes", "atomic": "adds to"}


class OutOfBounds(LabkitError):
    """A program uses a place that is not in the tensor."""


class Access(NamedTuple):
    """A use of memory: the program's number, the place (such as "x[3]"), and "load", "store" or "atomic"."""

    program: int
    place: str
    kind: str


class Run:
    """What the programs of a launch did: `bytes_read`, `bytes_written`, and `accesses` in their order."""

    def __init__(self) -> None:
        self.program = 0
        self.bytes_read = self.bytes_written = 0
        self._accesses: list[tuple[int, str, np.ndarray, str]] = []

    def note(self, name: str, values: np.ndarray, places: np.ndarray, kind: str) -> None:
        outside = places[(places < 0) | (places >= values.size)]
        if outside.size:
            told = f"program {self.program} {DOES[kind]} {name}[{outside[0]}], but {name} has {values.size} numbers"
            raise OutOfBounds(f"{told}: {kind} only where i < n")
        if kind != "store":
            self.bytes_read += places.size * values.itemsize
        if kind != "load":
            self.bytes_written += places.size * values.itemsize
        self._accesses.append((self.program, name, places, kind))

    @property
    def accesses(self) -> list[Access]:
        return [
            Access(program, f"{name}[{place}]", kind)
            for program, name, places, kind in self._accesses
            for place in places.tolist()
        ]


_run = Run()  # the launch that is going on


class Pointer:
    """Places in the memory of a tensor, called by the kernel's argument. A number more or less leads elsewhere."""

    def __init__(self, name: str, values: np.ndarray, before: np.ndarray, places: Any = 0):
        self.name, self.values, self.before, self.places = name, values, before, places

    def __add__(self, further: Any) -> Pointer:
        return Pointer(self.name, self.values, self.before, self.places + further)

    __radd__ = __add__
    __array_ufunc__ = None  # NumPy leaves `block + pointer` to the pointer

    def __sub__(self, back: Any) -> Pointer:
        return self + -back

    def masked(self, mask: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """The places, and which of them are used."""
        places, used = np.broadcast_arrays(self.places, True if mask is None else mask)
        _run.note(self.name, self.values, places[used], kind)
        return places, used


def launch(kernel: Callable, programs: int, *arguments: Any, together: bool = False, **constants: Any) -> Run:
    """Runs the programs of a kernel, one after another.

    Args:
        kernel: a function that uses `tl` as Triton's language.
        programs: their number.
        arguments, constants: the kernel's arguments. Tensors are contiguous and on the CPU.
        together: True lets all loads find what was in memory before the launch, as if all programs began at once.

    Raises:
        OutOfBounds: a program uses a place outside of a tensor, where a GPU would use somebody else's memory.
    """
    global _run
    _run = Run()
    given = inspect.signature(kernel).bind(*arguments, **constants).arguments
    for name, value in given.items():
        if isinstance(value, Tensor):
            values = value.detach().view(-1).numpy()
            given[name] = Pointer(name, values, values.copy() if together else values)
    for number in range(programs):
        _run.program = number
        kernel(**given)
    return _run


def in_triton(kernel: Callable) -> Any:
    """The same kernel as Triton runs it: ``in_triton(kernel)[(programs,)](...)``.

    With TRITON_INTERPRET=1 in the environment before Triton is imported, its interpreter runs it on the CPU.
    """
    import triton
    import triton.language

    same = FunctionType(kernel.__code__, kernel.__globals__ | {"tl": triton.language}, kernel.__name__)
    same.__annotations__ = dict.fromkeys(kernel.__annotations__, "constexpr")
    same.__module__, same.__qualname__ = kernel.__module__, kernel.__qualname__
    return triton.jit(same)


# ---- the language


def program_id(axis: int) -> int:
    """The number of the program."""
    return _run.program


def arange(start: int, end: int) -> np.ndarray:
    """The numbers from `start` up to `end`, a power of 2 many, as Triton wants it."""
    if (end - start) & (end - start - 1):
        raise ValueError(f"arange({start}, {end}): a block's size is a power of 2")
    return np.arange(start, end)


def load(pointer: Pointer, mask: Any = None, other: float | None = None) -> Any:
    """The numbers at the places whose mask is True, and `other` elsewhere: without it, anything (here NaN)."""
    places, used = pointer.masked(mask, "load")
    numbers = np.full(places.shape, np.nan if other is None else other, pointer.values.dtype)
    numbers[used] = pointer.before[places[used]]
    return numbers[()]


def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    """Writes the numbers to the places whose mask is True."""
    places, used = pointer.masked(mask, "store")
    pointer.values[places[used]] = np.broadcast_to(value, places.shape)[used]


def atomic_add(pointer: Pointer, value: Any, mask: Any = None) -> None:
    """Adds the numbers to those in memory. No other program comes between reading and writing."""
    places, used = pointer.masked(mask, "atomic")
    np.add.at(pointer.values, places[used], np.broadcast_to(value, places.shape)[used])
