"""Errors a user can act on: each message says what was wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LabkitError(Exception):
    """Something the caller gave labkit cannot be used; the message says what to do instead."""


class DataError(LabkitError):
    """A picture, a folder of pictures, a download or a batch cannot be used."""


class CheckpointError(LabkitError):
    """A checkpoint is missing, damaged, or belongs to other settings."""


class TrainingError(LabkitError):
    """Training cannot go on, for instance because a loss is no longer a finite number."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`" (did you mean ...?)"` if one of the known names resembles `name`, else an empty string."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
