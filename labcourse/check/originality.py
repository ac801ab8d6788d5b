"""Whether an answer is the student's own: it may not be labkit's answer to an exercise of its notebook, nor call it.

A profiler sees such a call, under whatever name.

A copy is not found: the text of labkit's function, typed in, is an answer like any other.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

LIBRARYS_OWN = "your answer calls the library's own {}: write it yourself."
OURS = ("labtrace.", "labkit.", "labcourse.")
CHECKS = "labcourse.check."


@cache
def library_code(notebook: str) -> dict[CodeType, str]:
    """The code of labkit's own answers to the exercises of a notebook, and of their parts, with their names.

    The parts are the functions and classes of the same module that a reference uses, as `busy` uses `Union`, and their
    parts. A class has its bases as parts, and a module all that it defines. If a function belongs to a check, its parts
    are what it uses of any module.

    Args:
        notebook: its number, such as "01".
    """
    checks = vars(importlib.import_module(f"{CHECKS}notebook_{notebook}")).values()
    left = [one for check in checks for one in getattr(check, "references", ())]
    found: dict[CodeType, str] = {}
    looked_at = set()
    while left:
        one = left.pop()
        if one not in looked_at:
            looked_at.add(one)
            left += _parts(one)
            if _name(one).startswith(OURS) and not _name(one).startswith(CHECKS):
                found |= dict.fromkeys(_codes(one), _name(one))
    return found


def _parts(one: Any) -> Iterator[Any]:
    """What belongs to an answer of labkit's, see `library_code`."""
    module, parts = one.__module__ if hasattr(one, "__module__") else "", []
    if isinstance(one, ModuleType):
        module, parts = one.__name__, [*vars(one).values()]
    elif isinstance(one, type):
        parts = [*one.__bases__]
    elif isinstance(one, FunctionType):
        read = (line.argval for line in dis.get_instructions(one) if line.opname == "LOAD_GLOBAL")
        parts = [one.__globals__.get(name) for name in read]
    for part in parts:
        if isinstance(part, FunctionType | type) and (part.__module__ == module or module.startswith(CHECKS)):
            yield part


@contextmanager
def calls_of(code: dict[CodeType, str]) -> Iterator[list[str]]:
    """Inside the block, collects the names of the functions with this code that are called."""
    called = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in code:
            called.append(code[frame.f_code])

    earlier = sys.getprofile()
    sys.setprofile(look if code else earlier)
    try:
        yield called
    finally:
        sys.setprofile(earlier)


def _codes(one: Any) -> list[CodeType]:
    """The code of a function, or of the methods of a class."""
    if isinstance(one, type):
        kinds = FunctionType | staticmethod | classmethod | property
        return [code for value in vars(one).values() if isinstance(value, kinds) for code in _codes(value)]
    names = "func", "__wrapped__", "__func__", "fget"
    while inner := next((getattr(one, name) for name in names if hasattr(one, name)), None):
        one = inner  # of a partial, a decorated function, a method or a property
    return [one.__code__] if isinstance(one, FunctionType) else []


def _name(one: Any) -> str:
    return f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"
