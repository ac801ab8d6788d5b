"""How a function of this package says what is wrong with an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MistakeFound(Exception):
    """A mistake of an answer that has been understood. Its text is the message for the student."""


@contextmanager
def hint(text: str) -> Iterator[None]:
    """Adds a hint to any error of an answer's code in the block."""
    try:
        yield
    except Exception as error:
        error.add_note(text)
        raise
