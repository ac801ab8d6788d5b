"""The helpers of every check: compare an answer with the right one, and name the likely mistake if it is wrong.

A check takes its inputs from `drawn`, so that `hidden` can run it again with other inputs during grading. It calls an
answer by `ask`, or in a block `guarded`.
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from numbers import Real
from random import Random
from textwrap import shorten, wrap
from typing import Any, TypeVar

import numpy as np
import torch
from pandas import DataFrame, RangeIndex
from torch import Tensor

from labcourse.check.errors import in_words
from labcourse.check.side_effects import CHANGED, kept
from labtrace.errors import message_alone

T = TypeVar("T")
LIKELY_REASONS = (  # the kind that is expected, the kind that came, and the likely reason
    ("", "None", "Is a `return` missing?"),
    (r"a tensor of shape \(\)", "a number", "Leave out .item() and float(): a number carries no gradient."),
    (r"a number|a tensor of shape \(\)", "a tensor|an array|a list", "Is a sum or a mean over all values missing?"),
)


class WrongAnswer(AssertionError):
    """An exercise's answer is not right yet. The message names the likely mistake and where to look.

    In Jupyter the message is all that is shown: the checks' own lines would hide it, and give the solution away. They
    are logged as a debug message of "labtrace".
    """

    def _render_traceback_(self) -> list[str]:  # IPython asks an exception for this
        return wrap(message_alone(self)[0], 80)  # nbgrader's Validate cuts longer lines


def exercise(*, again: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Lets a check say that an answer is right, and turns any error of the answer's code into a `WrongAnswer`.

    A check runs with its usual inputs, and then with some that it draws, always the same: so an answer that is right
    at home is right when it is graded, where `hidden` draws others. PyTorch's random numbers depend on the same seed;
    their state is restored after the check.

    Args:
        again: whether it runs with drawn inputs, too.
    """

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def checked(*answers: Any) -> None:
            stale = any(map(_is_stale, answers))
            require(not stale, "Python cannot read the last cell of this answer: correct its SyntaxError first.")
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(drawn(0, lambda random: random.randrange(2**31)))
                    check(*answers)
            except WrongAnswer:
                raise
            except Exception as error:  # it returned what this check cannot work with
                raise WrongAnswer(f"your answer cannot be checked: {type(error).__name__}: {error}.") from error
            if _INPUTS:
                return
            if again:
                with _inputs_from(check.__name__, "with other inputs"):
                    checked(*answers)
            print(f"✓ {check.__name__}: right")

        return checked

    return decorate


def _is_stale(answer: Any) -> bool:
    """Whether Python could not read the last cell that defines a function or class, so that it is an earlier one."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    pattern = rf"^(?:class|def) {re.escape(getattr(answer, '__name__', '(a value)'))}\b"
    cells = [cell for cell in shell.user_ns.get("In", ()) if re.search(pattern, cell, re.M)] if shell else []
    try:
        for cell in cells[-1:]:
            ast.parse(shell.transform_cell(cell))
    except SyntaxError:
        return True
    return False


def ask(answer: Callable[..., T], *given: Any, if_it_fails: str = "") -> T:
    """What ``answer(*given)`` returns, in a block `guarded`."""
    with guarded(answer, *given, if_it_fails=if_it_fails):
        got = answer(*given)
    return got


@contextmanager
def guarded(answer: Any, *given: Any, if_it_fails: str = "") -> Iterator[None]:
    """Around everything that a check does with an answer. In the block, random numbers follow from the check's seed.

    Args:
        answer: a function or a class.
        given: what it may not change: inputs, and of networks which weights learn, and their mode.
        if_it_fails: a hint.

    Raises:
        WrongAnswer: it fails, or leaves something changed, see `labcourse.check.side_effects`.
    """
    seed, wrong = int(torch.randint(2**31, ())), ""
    with kept(seed, *given) as left:
        try:
            yield
        except WrongAnswer as error:
            wrong = str(error)
        except (Exception, SystemExit) as error:  # an answer may raise anything
            wrong = in_words(error, if_it_fails)
    require(not wrong, wrong)
    name = f"{getattr(answer, '__name__', 'your answer')}: " if CHANGED in left else ""
    require(not left, name + "".join(left[:1]))


_INPUTS: list[Random] = []  # while inputs are drawn: their source


def drawn(usual: T, other: Callable[[Random], T]) -> T:
    """An input of a check: `usual`, or what `other` draws, numbers to which the same rules apply."""
    return other(_INPUTS[-1]) if _INPUTS else usual


def cases(usual: list[T], another: Callable[[Random], T]) -> list[T]:
    """The inputs of several calls of an answer: `usual`, or twelve from `another` where inputs are drawn."""
    return drawn(usual, lambda random: [another(random) for _ in range(12)])


def hidden(check: Callable[..., None], *answer: object) -> None:
    """Runs a check again with other inputs and sizes, so that only an answer that works for all of them passes.

    The variable LABKIT_CHECK_SEED, which grading sets, decides the inputs. Without it they differ each time.
    """
    seed = os.environ.get("LABKIT_CHECK_SEED") or str(Random().randrange(2**31))
    with _inputs_from(f"{seed} {check.__name__}", f"with other inputs, LABKIT_CHECK_SEED={seed}"):
        check(*answer)
    print(f"✓ {check.__name__}: right, with other inputs, too")


@contextmanager
def _inputs_from(seed: str, inputs: str) -> Iterator[None]:
    """Inside the block, checks draw their inputs, which a `WrongAnswer` names at its end."""
    _INPUTS.append(Random(seed))
    try:
        yield
    except WrongAnswer as error:
        raise WrongAnswer(f"{error} ({inputs})") from error
    finally:
        _INPUTS.pop()


def require(condition: bool, message: str) -> None:
    """Raises `WrongAnswer` with `message` unless `condition` holds."""
    if not condition:
        raise WrongAnswer(message)


def kind(value: object) -> str:
    """The type of an answer in words, with the shape of a tensor or an array, a dict's keys, a tuple's length."""
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, Tensor | np.ndarray):
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {tuple(value.shape)}"
    if isinstance(value, Real) and not isinstance(value, bool):
        return "a number"
    name = "str" if isinstance(value, str) else type(value).__name__
    return {"str": "a word", "NoneType": "None", "frozenset": "a set"}.get(name, f"a {name}")


def require_kind(got: object, expected: str, where: str = "") -> None:
    """Raises `WrongAnswer`, which ends with `where`, unless `kind` of an answer begins with `expected`."""
    got_kind = kind(got)
    fitting = (hint for right, wrong, hint in LIKELY_REASONS if re.match(right, expected) and re.match(wrong, got_kind))
    text = f"{expected} is expected, not {got_kind}. {next(fitting, '')}".rstrip()
    require(got_kind.startswith(expected), with_case(text, where))


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
        right: a number, a word, a set, a range, a tensor, or a dict or tuple of numbers or words.
        mistakes: the result of each likely mistake and its message. For a dict, the keys that show the mistake are
            enough. A mistake that gives the right result here is skipped. Instead of a result, a mistake may be a
            function of `got` and `right` that recognises it.
        otherwise: the message for any other wrong answer.
        where: the input in words. A message ends with it and with the answer, or a dict's wrong values.

    Raises:
        WrongAnswer: with the message of the first mistake that fits, or `otherwise`.
    """
    got = got if isinstance(right, Tensor) else plain(got)
    _require_same_kind(got, right, where)
    if same(got, right):
        return
    where = where and f"{_answer(got, right)}; {where}"
    for wrong, message in mistakes:
        require(not is_mistake(got, right, wrong), with_case(message, where))
    raise WrongAnswer(with_case(otherwise, where))


def is_mistake(got: Any, right: Any, wrong: Any) -> bool:
    """Whether this answer is the result of a likely mistake: a value that is not the right one, or a function."""
    return wrong(got, right) if callable(wrong) else same(got, wrong) and not same(right, wrong)


def with_case(message: str, case: str) -> str:
    """A message with the case in which it holds behind it, in so many characters that all can be read at a glance."""
    return f"{message} (Case: {shorten(case, max(80, 280 - len(message)), placeholder=' ...')})" if case else message


def plain(value: Any) -> Any:
    """Numbers in place of tensors and arrays without dimensions, in a dict or tuple as well."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _require_same_kind(got: Any, right: Any, where: str) -> None:
    if isinstance(right, Mapping) and isinstance(got, Mapping):
        for words, names in (("are missing", right.keys() - got.keys()), ("are too many", got.keys() - right.keys())):
            require(not names, with_case(f"these keys {words}: {', '.join(sorted(map(repr, names)))}.", where))
    require_kind(got, kind(right), where)
    for key in right if isinstance(right, Mapping) else range(len(right)) if isinstance(right, tuple) else ():
        _require_same_kind(got[key], right[key], f"{key!r}; {where}".removesuffix("; "))


def same(a: Any, b: Any) -> bool:
    """Whether two answers are equal, rounding apart. Of a dict, the keys of `b` count."""
    if isinstance(b, Mapping):
        return all(same(a[key], b[key]) for key in b)
    if isinstance(b, tuple):
        return all(map(same, a, b))
    if isinstance(a, Tensor):
        return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5)
    return a == b if isinstance(b, str | set | range) else math.isclose(a, b, rel_tol=1e-6, abs_tol=0 if b else 1e-9)


def _answer(got: Any, right: Any) -> str:
    if isinstance(right, Mapping):
        return ", ".join(f"{key!r} is not {shown(got[key])}" for key in right if not same(got[key], right[key]))
    return f"your answer is {shown(got)}"


def shown(value: Any) -> str:
    """An input or an answer in a few words."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, DataFrame):
        table = value if isinstance(value.index, RangeIndex) else value.reset_index(names="row")
        rows = [table.columns, *table.itertuples(index=False)]
        return "; ".join(" ".join(map(shown, row)) for row in rows)
    if isinstance(value, Tensor):
        return shown(value.tolist()) if value.dim() == 1 and len(value) < 5 else kind(value)
    return f"{value:.6g}" if isinstance(value, Real) else str(value) or "nothing"
