"""Reads the events of a trace file without ever holding the whole text, with errors for files that are no traces."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from json import JSONDecoder
from pathlib import Path
from typing import Any, TextIO, cast

from labkit.errors import LabkitError

PIECE = 1 << 22  # characters read at a time: small beside the tables, large beside one event
LONGEST_NUMBER = 64  # characters; a number closer to the end of a piece may go on in the next one
LONGEST_TAIL = 1 << 16  # characters at the end of a piece in which the last end of an event is looked for
SPACE = re.compile(r"[ \t\r\n]*")
BETWEEN = re.compile(r"}\s*,\s*{")
# A time since 1970 in microseconds has more digits than a float: 1623142623460111.123 would become ...111.0. So numbers
# with a fraction stay texts.
EXACT, PLAIN = JSONDecoder(parse_float=str), JSONDecoder()
AGAIN = "Record it again, or copy it again from its source."


class TraceError(LabkitError):
    """A trace cannot be read, or lacks the events that a table needs."""


class NoTraceError(TraceError):
    """A file is sound JSON, but no trace."""


def parse(file: Path, on_events: Callable[[list[Any]], None]) -> dict[str, Any]:
    """Calls `on_events` with the entries of the list "traceEvents", many at a time, and gives the file's other entries.

    Numbers with a fraction are texts in events, and floats in the other entries.

    Raises:
        TraceError: the file cannot be read, is no JSON, or has no list of events.
    """
    opened = gzip.open if file.name.endswith(".gz") else open
    try:
        with cast(TextIO, opened(file, "rt", encoding="utf-8-sig", newline="")) as stream:
            return _trace(_Text(stream), file, on_events)
    except (OSError, EOFError, zlib.error) as cause:
        raise TraceError(
            f"{file}: cannot be read ({cause}): it is damaged, cut off or not compressed, or closed to you. {AGAIN}"
        ) from cause
    except RecursionError as cause:
        raise TraceError(
            f"{file}: lists or objects in it are nested hundreds deep. No profiler writes that. {AGAIN}"
        ) from cause
    except ValueError as cause:
        raise TraceError(f"{file}: no JSON, or cut off ({cause}). {AGAIN}") from cause


def _trace(text: _Text, file: Path, on_events: Callable[[list[Any]], None]) -> dict[str, Any]:
    """The object that the whole file is."""
    first = text.next()
    if not first:
        raise TraceError(f"{file}: the file is empty. {AGAIN}")
    if first == "[":
        raise NoTraceError(
            f'{file}: a bare list of events, which HTA cannot read. Save it as {{"traceEvents": [...]}}.'
        )
    meta: dict[str, Any] = {}
    found = False
    if first != "{":
        text.value(PLAIN)
    else:
        for _ in text.entries("{", "}"):
            name = text.value(PLAIN)
            text.take(":")
            if name == "traceEvents" and text.next() == "[":
                found = True
                for _ in text.entries("[", "]"):
                    on_events(text.events())
            else:
                meta[name] = text.value(PLAIN)
    if text.next():
        raise ValueError(f"something follows its end: {text.next()!r}")
    if not found:
        raise NoTraceError(
            f'{file}: JSON, but no trace: there is no list of "traceEvents" in it. Choose a file made by '
            "`labkit.record`."
        )
    return meta


class _Text:
    """The text of a file, of which only the piece round the place of reading is in memory."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text, self._at = stream.read(PIECE), 0
        self._one_by_one_until = 0

    def next(self) -> str:
        """The next character that is no space, or "" at the end."""
        while True:
            self._at = cast(re.Match, SPACE.match(self._text, self._at)).end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def take(self, expected: str) -> None:
        """Passes over one character, which must be this one."""
        if (found := self.next()) != expected:
            raise ValueError(f"{expected!r} expected, and found {found or 'its end'!r}")
        self._at += 1

    def entries(self, begin: str, end: str) -> Iterator[None]:
        """Stops at the begin of each entry of a list or object, to be read there, and passes over commas and ends."""
        self.take(begin)
        more = self.next() != end
        while more:
            yield
            if more := self.next() != end:
                self.take(",")
        self.take(end)

    def value(self, decoder: JSONDecoder) -> Any:
        """The value that begins here."""
        self.next()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._at)
            except ValueError:
                if not self._read_on():
                    raise
                continue
            if len(self._text) - end < LONGEST_NUMBER and self._read_on():
                continue
            self._at = end
            return value

    def events(self) -> list[Any]:
        """As many of a list's entries as are complete in this piece, at least one: many at once are read faster."""
        if self._at >= self._one_by_one_until:
            tail = max(self._at, len(self._text) - LONGEST_TAIL)
            ends = [between.start() + 1 for between in BETWEEN.finditer(self._text, tail)]
            if ends:
                # If this is not between two entries but inside of one, then the text up to here is no JSON.
                end = ends[-1]
                try:
                    found = EXACT.decode(f"[{self._text[self._at : end]}]")
                except ValueError:
                    self._one_by_one_until = end
                else:
                    self._at = end
                    return found
        return [self.value(EXACT)]

    def _read_on(self) -> bool:
        """Adds the next piece to what is left of this one, and returns whether there was one."""
        if piece := self._stream.read(PIECE):
            self._text, self._at = self._text[self._at :] + piece, 0
            self._one_by_one_until = 0
        return bool(piece)
