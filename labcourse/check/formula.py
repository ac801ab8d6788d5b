"""Exercises whose answer gives a result for its arguments, and does nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import wraps
from inspect import signature
from random import Random
from typing import Any, NamedTuple

from labcourse.check.answers import WrongAnswer, ask, cases, exercise, expect, plain, same, shown, with_case

Mistakes = Iterator[tuple[Any, str]]


class _Tried(NamedTuple):
    """What an answer returned for one case, and what `expect` is told of it."""

    got: Any
    right: Any
    mistakes: list[tuple[Any, str]]
    otherwise: str
    where: str

    def fits(self, place: int) -> bool:
        """Whether somebody who makes the mistake at this place of the list gets what was returned."""
        got = plain(self.got)
        try:
            wrong, _ = self.mistakes[place]
            return bool(same(got, self.right) or wrong(got, self.right) if callable(wrong) else same(got, wrong))
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):  # of another kind
            return False


def formula(
    right: Callable, usual: list[tuple], other: Callable[[Random], tuple], inputs: Callable[..., tuple] | None = None
) -> Callable[[Callable[..., Mistakes]], Callable[..., None]]:
    """Makes the check of an exercise whose answer gives a result for its arguments, and does nothing else.

    The decorated function takes the arguments of a case. It yields the result of each likely mistake with its message,
    as for `expect` and in one order for all cases, and finally None with the message for any other wrong answer. The
    mistake is named that explains most of what the answer returned, if it explains half of the cases.

    Args:
        right: gives the right results.
        usual: the arguments of each case.
        other: draws those of the hidden test's cases.
        inputs: makes what the answer is called with of a case, if that is not the case itself.
    """

    def decorate(mistakes: Callable[..., Mistakes]) -> Callable[..., None]:
        @exercise()
        @wraps(mistakes)
        def check(answer: Callable) -> None:
            given = cases(usual, other)
            tried: list[_Tried] = []
            failed: WrongAnswer | None = None
            for turn, case in enumerate([*given, given[0]]):  # again at the end: an answer may have kept something
                *wrong, (_, otherwise) = mistakes(*case)
                pairs = zip(signature(mistakes).parameters, case, strict=True)
                words = ", ".join(f"{name} {shown(value)}" for name, value in pairs)
                where = "called again, " * (turn == len(given)) + words
                try:
                    its = inputs(*case) if inputs else deepcopy(case)  # which an answer may change
                    got = ask(answer, *its, if_it_fails=with_case(otherwise, where))
                except WrongAnswer as error:  # what it got wrong before comes first
                    failed = error
                    break
                tried.append(_Tried(got, right(*case), wrong, otherwise, where))
            for one in tried:
                fits = [sum(t.fits(place) for t in tried) for place in range(len(one.mistakes))]
                ranked = sorted(range(len(fits)), key=lambda place: -fits[place])
                likely = [one.mistakes[place] for place in ranked if 2 * fits[place] >= len(tried)]
                expect(one.got, one.right, likely, one.otherwise, one.where)
            if failed:
                raise failed

        return check

    return decorate
