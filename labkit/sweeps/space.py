"""What a sweep searches: a range or some choices for each setting, as they are typed on the command line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.errors import LabkitError, check_known
from labkit.models import MODELS

if TYPE_CHECKING:
    import optuna

Value = int | float | str
FORMS = "LOW:HIGH, LOW:HIGH:log, or choices: A,B,C"


@dataclass(frozen=True)
class Range:
    """Every number from `low` to `high`, both included; whole numbers only, if both are whole numbers."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}" + ":log" * self.log

    @property
    def examples(self) -> tuple[Value, ...]:
        """Values that stand for all: if these can be used, the others can."""
        return self.low, self.high

    def draw(self, trial: optuna.Trial, name: str) -> Value:
        """The trial's value: an earlier one, if it has one already."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choices:
    """Some values."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in self.values)

    @property
    def examples(self) -> tuple[Value, ...]:
        """All of them."""
        return self.values

    def draw(self, trial: optuna.Trial, name: str) -> Value:
        """The trial's value: an earlier one, if it has one already."""
        return trial.suggest_categorical(name, self.values)  # type: ignore[return-value]  # one of them, so not None


Space = dict[str, Range | Choices]


def searchable(kind: str) -> dict[str, type]:
    """The settings that can be searched, each with its type: the model's own, "lr" and "batch_size".

    Raises:
        LabkitError: there is no model of that kind.
    """
    check_known("model", kind, MODELS)
    arguments = inspect.signature(MODELS[kind]).parameters.values()
    return {argument.name: type(argument.default) for argument in arguments} | {"lr": float, "batch_size": int}


def parse(space: Mapping[str, str], kind: str) -> Space:
    """The search space, from "LOW:HIGH", "LOW:HIGH:log" or "A,B,C" by the name of the setting.

    Raises:
        LabkitError: a setting is unknown, or its range cannot be used.
    """
    types = searchable(kind)
    if not space:
        raise LabkitError(
            f"nothing to search: give at least one setting a range, for example --lr 1e-4:1e-3:log ({FORMS})."
        )
    parsed: Space = {}
    for name, text in space.items():
        check_known("setting", name, types)
        parsed[name] = _range(name, text, types[name]) if ":" in text else _choices(name, text, types[name])
    return parsed


def _range(name: str, text: str, kind: type) -> Range:
    if kind is str:
        raise LabkitError(f"{name}={text!r}: a range needs numbers, and {name} is a name. Give choices: A,B,C.")
    low_text, high_text, *rest = text.split(":")
    if rest not in ([], ["log"]):
        raise LabkitError(f"{name}={text!r} is no range. Give {FORMS}.")
    low, high = _value(name, low_text, kind), _value(name, high_text, kind)
    assert not isinstance(low, str) and not isinstance(high, str)
    if low >= high:
        raise LabkitError(f"{name}={text!r}: {low:g} is not below {high:g}. Give {FORMS}.")
    if rest and low <= 0:
        raise LabkitError(f"{name}={text!r}: a logarithmic range begins above 0.")
    return Range(low, high, log=bool(rest))


def _choices(name: str, text: str, kind: type) -> Choices:
    return Choices(tuple(dict.fromkeys(_value(name, part, kind) for part in text.split(","))))


def _value(name: str, text: str, kind: type) -> Value:
    needed = {int: "a whole number", float: "a number", str: "a name"}[kind]
    try:
        value = kind(text.strip())
    except ValueError:
        value = ""
    if value == "" or isinstance(value, float) and not math.isfinite(value):
        raise LabkitError(f"{name}: {text.strip()!r} is not {needed}. Give {FORMS}.")
    return value
