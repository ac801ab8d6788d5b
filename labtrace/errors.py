"""Errors a user can act on: each message says what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any


def message_alone(error: BaseException) -> list[str]:
    """What Jupyter shows of an error, as its `_render_traceback_`. The traceback is logged, as a debug message."""
    logging.getLogger("labtrace").debug("an error", exc_info=error)
    return [f"{type(error).__name__}: {error}"]


class LabError(Exception):
    """The caller gave something that cannot be used. The message says what to do instead."""

    _render_traceback_ = message_alone


class TraceError(LabError):
    """A trace cannot be read, or lacks the events that a table needs."""


class ByRank(dict[int, Any]):
    """What there is of each rank. Asking for another one is an error that names these."""

    def __missing__(self, rank: object) -> None:
        raise LabError(f"There is no rank {rank} in this trace. Choose among {', '.join(map(str, self))}.")


def check_known(argument: str, name: object, known: Iterable[object]) -> None:
    """Raises `LabError`, with the nearest known name, if `name` is not one that `argument` can have."""
    choices = list(known)
    if name not in choices:
        names = [str(choice) for choice in choices]
        raise LabError(
            f"{argument}={name!r} is unknown{did_you_mean(str(name), names)}. "
            f"Choose one of: {', '.join(names) or '(there are none)'}."
        )


def did_you_mean(name: str, known: list[str]) -> str:
    """The known name that is nearest to `name`, as a question in brackets; empty if none is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_exists(path: Path, expected: str, error: type[LabError] = LabError) -> None:
    """Raises `error` if nothing lies at `path`. `expected` says what belongs there."""
    if not path.exists():
        raise error(f"{path}: there is no such file or folder. Name {expected}.")


def check_at_least(least: float, **numbers: float) -> None:
    """Raises `LabError` if one of these arguments, given by name, is below `least` or not finite."""
    for name, number in numbers.items():
        if not (isinstance(number, Real) and least <= number < float("inf")):
            raise LabError(f"{name}={number!r:.60}: a finite number, at least {least}, is needed.")


def say(message: str, program: str = "labtrace") -> None:
    """Prints an error or a warning of a program."""
    print(f"{program}: {message}", file=sys.stderr)
