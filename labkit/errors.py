"""Errors of training, beside labtrace's: each message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from labtrace.errors import LabError, did_you_mean

LabkitError = LabError  # the same class, so that to catch it catches errors of recordings, too


class DataError(LabkitError):
    """A picture, a folder of pictures, a download or a batch cannot be used."""


class CheckpointError(LabkitError):
    """A checkpoint is missing, damaged, or belongs to other settings."""


class TrainingError(LabkitError):
    """Training cannot continue, for instance because a loss is no longer a finite number."""


def shown(path: object) -> str:
    """A path for a message: what no terminal should be sent, such as its control sequences, is escaped."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(path))


@contextmanager
def explained(where: str, advice: str, kind: type[LabkitError] = LabkitError) -> Iterator[None]:
    """Makes an error inside, of code that is not labkit's, one of this kind: where it was, its reason, what to do."""
    try:
        yield
    except Exception as error:
        if isinstance(error, LabkitError) or "Memory" in type(error).__name__:  # too little of it
            raise
        raise kind(" ".join(f"{where}: {str(error)[:200].rstrip('.')}. {advice}".split())) from error


def check_overrides(given: type, known: Collection[str], bases: Collection[type], what: str) -> None:
    """Raises `LabkitError`, with the nearest known name, if a class overrides nothing: perhaps a name is misspelt.

    Args:
        given: the class.
        known: the methods that it can override.
        bases: classes of labkit's, whose own methods do not count.
        what: what it is a class of, for the message.
    """
    names = [name for base in given.__mro__ if base not in bases and base is not object for name in vars(base)]
    if set(names).isdisjoint(known):
        hint = next((near for name in names if name[:2] != "__" and (near := did_you_mean(name, [*known]))), "")
        raise LabkitError(f"{given.__name__} overrides nothing of a {what}{hint}. There are: {', '.join(known)}.")
