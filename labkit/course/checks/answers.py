"""What every check says when an answer is right, and when it is not."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, allclose


class WrongAnswer(AssertionError):
    """An exercise's answer is not right yet; the message says what it looks like and where to look."""


def passed(name: str) -> None:
    """Says that an answer is right."""
    print(f"✓ {name}: right")


def require(condition: bool, message: str) -> None:
    """Raises `WrongAnswer` with `message` unless `condition` holds."""
    if not condition:
        raise WrongAnswer(message)


def instead(got: object) -> str:
    """What an answer is that has the wrong type: how a message ends that says what was expected."""
    return "not None. Is a `return` missing?" if got is None else f"not a {type(got).__name__}."


def compare(answer: Tensor, right: Tensor, mistakes: Iterable[tuple[Tensor, str]], otherwise: str) -> None:
    """Compares an answer with the right one, and else with what likely mistakes would give.

    Raises:
        WrongAnswer: the message of the mistake whose result the answer equals, or `otherwise`.
    """
    require(isinstance(answer, Tensor), f"a tensor is expected, {instead(answer)}")
    require(
        answer.shape == right.shape,
        f"the result has shape {tuple(answer.shape)}, it should have {tuple(right.shape)}.",
    )
    if _equal(answer, right):
        return
    for result, message in mistakes:
        require(not _equal(answer, result), message)
    raise WrongAnswer(otherwise)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and allclose(a, b, rtol=1e-4, atol=1e-5)
