"""Whether an answer is the student's own: it may not be labkit's answer to the exercise, nor call it.

At home a profiler sees such a call, under whatever name. Where answers are graded, they run with a copy of the
packages in which the code that `library_code` names is taken out (`tools/grading/packages.py`).

A copy is not found: the text of labkit's function, typed in, is an answer like any other.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

LIBRARYS_OWN = "your answer calls the library's own {}: write it yourself."
PACKAGES = ("labtrace.", "labkit.", "labcourse.")
CHECKS = "labcourse.check."


def references_of(notebook: str) -> list[Callable]:
    """Labkit's own answers to the exercises of a notebook, which is given by its number, such as "01"."""
    checks = vars(importlib.import_module(f"{CHECKS}notebook_{notebook}")).values()
    return [one for check in checks for one in getattr(check, "references", ())]


def library_code(references: Iterable[Callable]) -> dict[CodeType, str]:
    """The code of labkit's own answers and of their parts, with their names.

    The parts are functions and classes of the same module that a reference uses, as `busy` uses `Union`. If a reference
    belongs to a check, they are what it uses of any module.
    """
    own: list[Any] = []
    for one in references:
        if _name(one).startswith(CHECKS):
            parts = [*_parts(one)]
            nested = [part for part in parts if _name(part).startswith(CHECKS)]
            own += [part for each in (parts, *map(_parts, nested)) for part in each]
        else:
            own += [one, *(part for part in _parts(one) if part.__module__ == one.__module__)]
    found: dict[CodeType, str] = {}
    for one in own:
        if _name(one).startswith(PACKAGES) and not _name(one).startswith(CHECKS):
            codes = _codes(one)
            found |= dict.fromkeys([codes["__init__"]] if "__init__" in codes else codes.values(), _name(one))
    return found


def _parts(one: Any) -> Iterator[Any]:
    """The functions and classes that a function uses by their names."""
    for code in _codes(one).values() if isinstance(one, FunctionType) else ():
        for name in code.co_names:
            part = one.__globals__.get(name)
            if isinstance(part, FunctionType | type):
                yield part


@contextmanager
def calls_of(references: Iterable[Callable]) -> Iterator[list[str]]:
    """Inside the block, collects the names of the references that are called, and of their parts."""
    names, called = library_code(references), []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in names:
            called.append(names[frame.f_code])

    earlier = sys.getprofile()
    sys.setprofile(look if names else earlier)
    try:
        yield called
    finally:
        sys.setprofile(earlier)


def _codes(one: Any) -> dict[str, CodeType]:
    """The code of a function, or of the methods of a class, by name."""
    if isinstance(one, type):
        kinds = FunctionType | staticmethod | classmethod
        methods = [value for value in vars(one).values() if isinstance(value, kinds)]
        return {name: code for method in methods for name, code in _codes(method).items()}
    while inner := getattr(one, "func", getattr(one, "__wrapped__", getattr(one, "__func__", None))):
        one = inner  # of a partial, a decorated function or a method
    return {one.__name__: one.__code__} if isinstance(one, FunctionType) else {}


def _name(one: Any) -> str:
    return f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', '')}"
