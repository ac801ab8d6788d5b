"""Whether an answer is a student's own work, where labkit has the same function: neither labkit's, nor a call of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any
from unittest.mock import patch

from labkit.course.check.source import PACKAGES

JUDGE = "labkit.course.check."


@contextmanager
def calls_of(rights: tuple[Callable, ...]) -> Iterator[list[str]]:
    """Inside the block, collects the names of those of labkit's answers that are called, other than by a check.

    A profiler sees the calls of functions, under whatever name. It would slow a whole training step down, so that
    the methods of classes (`__init__`, where there is one) are replaced by some that note their calls.
    """
    functions = {right.__code__: _name(right) for right in rights if isinstance(right, FunctionType)}
    called: list[str] = []

    def note(frame: FrameType | None, name: str) -> None:
        if frame is None or not frame.f_globals.get("__name__", "").startswith(JUDGE):
            called.append(name)

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in functions:
            note(frame.f_back, functions[frame.f_code])

    def noting(method: Callable, name: str) -> Callable:
        def noted(*args: object, **kwargs: object) -> object:
            note(sys._getframe(1), name)
            return method(*args, **kwargs)

        return noted

    earlier = sys.getprofile()
    with ExitStack() as stack:
        for right in rights:
            for name, method in _entries(right).items():
                stack.enter_context(patch.object(right, name, noting(method, _name(right))))
        if functions:
            sys.setprofile(look)
            stack.callback(sys.setprofile, earlier)
        yield called


def _entries(right: Any) -> dict[str, FunctionType]:
    """The methods of a class of labkit that an answer would have to call: `__init__`, else all of them."""
    if not isinstance(right, type):
        return {}
    methods = {name: method for name, method in vars(right).items() if isinstance(method, FunctionType)}
    return {"__init__": methods["__init__"]} if "__init__" in methods else methods


def not_own(answer: object, rights: tuple[Callable, ...], called: list[str]) -> str | None:
    """The reason why a right answer does not count as a student's own, in words, or None if it does count.

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
    if _module(innermost).split(".")[0] in PACKAGES:
        return f"this is a {_name(innermost)}: write the answer yourself, with `def` or `class`."
    return None


def _layers(answer: Any) -> Iterator[Any]:
    """The classes that a class builds on, and itself. Of another object, the layers of decorators, outermost first."""
    if isinstance(answer, type):
        yield from reversed(answer.__mro__[:-1])
        return
    while answer is not None:
        yield answer
        answer = _inner(answer)


def _inner(outer: Any) -> Any:
    """The function in a partial, a method or a decorated function, or None if there is no other."""
    return outer.func if isinstance(outer, partial) else getattr(outer, "__wrapped__", getattr(outer, "__func__", None))


def _codes(answer: Any) -> Iterator[CodeType]:
    """The code of a function, or of all methods of a class or an object."""
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
