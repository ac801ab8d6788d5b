"""Whether an answer is a student's own work, where labkit has the same function: neither labkit's, nor a call of it."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

from labkit.course.check.source import tampering

JUDGE = "labkit.course.check."


@contextmanager
def calls_of(rights: tuple[Callable, ...]) -> Iterator[list[str]]:
    """Inside the block, collects the names of those of labkit's answers that are called, other than by a check."""
    # By id, since the hash of a code is slow, and this is asked at every call of any function.
    watched = {id(code): _name(right) for right in rights for code in _codes(_entry(right))}
    called: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and id(frame.f_code) in watched:
            caller = frame.f_back
            if caller is None or not caller.f_globals.get("__name__", "").startswith(JUDGE):
                called.append(watched[id(frame.f_code)])

    earlier = sys.getprofile()
    sys.setprofile(look if watched else earlier)
    try:
        yield called
    finally:
        sys.setprofile(earlier)


def not_own(answer: object, rights: tuple[Callable, ...], called: list[str]) -> str | None:
    """Why a right answer does not count as a student's own, in words; None if it does.

    It does not hold against copying: the text of labkit's function, typed in, is an answer like any other.

    Args:
        answer: a function or class, or the dict of an exercise that asks for numbers or words.
        rights: labkit's own answers to this exercise.
        called: the names of those of them that the answer has called.
    """
    if isinstance(answer, Mapping):
        return None
    layers = list(_layers(answer))
    codes = {code for layer in layers for code in _codes(layer)}
    labkits = [_name(right) for right in rights if codes & {*_codes(right)}]
    innermost = layers[-1]
    if _module(innermost).startswith("labkit."):
        labkits.append(_name(innermost))
    if labkits:
        return f"this is labkit's own {labkits[0]}: write it yourself."
    if called:
        return f"your answer calls labkit's own {called[0]}: write it yourself."
    if _module(innermost) != "__main__":
        return f"this is {_name(innermost)}: write the answer in the notebook, with `def` or `class`."
    return next((found for code in codes if (found := tampering(_cell(code)))), None)


def _entry(right: Any) -> Any:
    """The part of labkit's answer that nobody can do without: of a class that has one, `__init__`."""
    return vars(right).get("__init__", right) if isinstance(right, type) else right


def _layers(answer: Any) -> Iterator[Any]:
    """The classes that a class builds on, and itself; a function or object in its decorators, outermost first."""
    if isinstance(answer, type):
        yield from reversed(answer.__mro__[:-1])
        return
    while answer is not None:
        yield answer
        answer = _inner(answer)


def _inner(outer: Any) -> Any:
    """The function in a partial, a method or a decorated function; None if there is no other."""
    return outer.func if isinstance(outer, partial) else getattr(outer, "__wrapped__", getattr(outer, "__func__", None))


def _codes(answer: Any) -> Iterator[CodeType]:
    """The code of a function; of a class or an object, of its methods."""
    methods = [answer]
    if not isinstance(answer, FunctionType):
        methods = list(vars(answer if isinstance(answer, type) else type(answer)).values())
    for method in methods:
        while method is not None:
            if isinstance(method, FunctionType):
                yield method.__code__
            method = _inner(method)


def _module(answer: Any) -> str:
    """The name of the module in which an answer is written, which is `__main__` for a notebook."""
    if isinstance(answer, FunctionType):
        return str(answer.__globals__.get("__name__"))
    return str((answer if isinstance(answer, type) else type(answer)).__module__)


def _name(answer: Any) -> str:
    named = answer if hasattr(answer, "__qualname__") else type(answer)
    return f"{named.__module__}.{named.__qualname__}"


def _cell(code: CodeType) -> str:
    """The cell of a notebook in which a function is written; nothing for a function in a file."""
    cell = "ipykernel" in code.co_filename or "ipython" in code.co_filename
    return "".join(linecache.getlines(code.co_filename)) if cell else ""
