"""The helpers of every check: compare an answer with the right one, and name the likely mistake if it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

from torch import Tensor, allclose


class WrongAnswer(AssertionError):
    """An exercise's answer is not right yet; the message names the likely mistake and where to look."""


def passed(name: str) -> None:
    """Says that an answer is right."""
    print(f"✓ {name}: right")


def require(condition: bool, message: str) -> None:
    """Raises `WrongAnswer` with `message` unless `condition` holds."""
    if not condition:
        raise WrongAnswer(message)


@contextmanager
def failing(errors: type[Exception] | tuple[type[Exception], ...], message: str) -> Iterator[None]:
    """Turns one of these errors in the block into a `WrongAnswer` with `message` and the error's own text."""
    try:
        yield
    except WrongAnswer:
        raise
    except errors as error:
        raise WrongAnswer(f"{message} ({type(error).__name__}: {error})") from error


def kind(value: object) -> str:
    """The type of an answer in words, with a tensor's shape, a dict's keys, a tuple's length."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, Real) and not isinstance(value, bool):
        return "a number"
    return {str: "a word", type(None): "None"}.get(type(value), f"a {type(value).__name__}")


def require_kind(got: object, expected: str, where: str = "") -> None:
    """Raises `WrongAnswer` unless `kind` of an answer begins with `expected`."""
    hint = " Is a `return` missing?" if got is None and not where else ""
    require(kind(got).startswith(expected), f"{where}{expected} is expected, not {kind(got)}.{hint}")


def expect(
    got: Any,
    right: Any,
    mistakes: Iterable[tuple[Any | Callable[[Any, Any], bool], str]],
    otherwise: str,
    where: str = "",
) -> None:
    """Compares an answer with the right one, and a wrong answer with the results of likely mistakes.

    Args:
        got: the answer, which must be of the same `kind` as `right`.
        right: a number, a word, a tensor, or a dict or tuple of those.
        mistakes: the result of each likely mistake and its message. Of a dict, the keys that give the mistake away are
            enough. A mistake that leads to the right result here is skipped. In place of a result there may be a
            function of `got` and `right` that recognises the mistake.
        otherwise: the message for any other wrong answer.
        where: the input in words; every message begins with it and with the answer, or a dict's wrong values.

    Raises:
        WrongAnswer: with the message of the first mistake that fits, or `otherwise`.
    """
    got = got if isinstance(right, Tensor) else _plain(got)
    _require_same_kind(got, right)
    if _same(got, right):
        return
    told = f"{where}: {_answer(got, right)}. " if where else ""
    for wrong, message in mistakes:
        fits = wrong(got, right) if callable(wrong) else _same(got, wrong) and not _same(right, wrong)
        require(not fits, told + message)
    raise WrongAnswer(told + otherwise)


def _plain(value: Any) -> Any:
    """Numbers in place of tensors and arrays without dimensions, in a dict as well."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _require_same_kind(got: Any, right: Any, where: str = "") -> None:
    require_kind(got, kind(right), where)
    for key in right if isinstance(right, Mapping) else range(len(right)) if isinstance(right, tuple) else ():
        _require_same_kind(got[key], right[key], f"{where}{key}: ")


def _same(a: Any, b: Any) -> bool:
    if isinstance(b, Mapping):
        return all(_same(a[key], b[key]) for key in b)
    if isinstance(b, tuple):
        return all(map(_same, a, b))
    if isinstance(b, Tensor):
        return a.shape == b.shape and allclose(a, b, rtol=1e-4, atol=1e-5)
    return a == b if isinstance(b, str) else math.isclose(a, b, abs_tol=0 if b else 1e-9)


def _answer(got: Any, right: Any) -> str:
    if isinstance(right, Mapping):
        return ", ".join(f"{key} is not {_shown(got[key])}" for key in right if not _same(got[key], right[key]))
    return f"your answer is {_shown(got)}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return f"{value:.6g}" if isinstance(value, Real) else repr(value)
