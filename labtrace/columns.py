"""Events -> the columns of a table: only what the tables need of each event, and times in nanoseconds."""

from __future__ import annotations

from array import array
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from msgspec.structs import replace

from labtrace.dialects import CATEGORIES, SHAPED
from labtrace.parsing import NULL, Arguments, Event, TraceError

LARGEST_POWER = 30  # of ten, in a time that is still a number
NO_TIME = -(1 << 62)  # in place of a time that is missing, not a number or infinite
LATEST_NS = (1 << 62) - 1  # since 1970: the year 2116. A later time is none in microseconds
LONGEST_NS = 1 << 53  # 104 days: until then a float of microseconds is exact to the nanosecond
STREAM = "stream "  # PyTorch 1.8 to 1.10 name the GPU's threads so
NO_ARGUMENTS = Arguments()
NUMBERS = ("category", "name", "pid", "tid", "begin", "duration", "stream", "correlation", "external", "inputs")


class Columns:
    """Collects events.

    Attributes:
        single: how many begins and ends have no other half, known after `table`.
        uncategorised: how many complete events have no category.
        waits_on: by the correlation of a call that waits for an event, the stream in which that was recorded, and the
            correlation of the call that recorded it.
        inputs: the different shapes, types and values of inputs of the operators in `SHAPED`, as JSON.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.single = self.uncategorised = 0
        self.waits_on: dict[int, tuple[int, int]] = {}
        self.inputs: dict[str, int] = _Numbered()
        self._halves: list[Event] = []
        self._texts = _Numbered()
        self._numbers = array("q")  # of each event those of NUMBERS

    def __len__(self) -> int:
        return len(self._numbers) // len(NUMBERS)

    @property
    def categories(self) -> set[str]:
        """The categories of the events, as the file has them, and other texts."""
        return {text for text in self._texts if isinstance(text, str)}

    def add(self, event: Event) -> None:
        """Keeps what the tables need of this event: nothing of arrows, counters, names and marks.

        Raises:
            OverflowError: a stream, correlation or External id has more than 64 bits.
        """
        if event.ph in ("B", "E"):
            self._halves.append(event)
        if event.ph != "X" or event.cat == "Trace":  # the span of the whole recording
            return
        if event.cat is None:
            self.uncategorised += 1
            return
        arguments = event.args or NO_ARGUMENTS
        texts, tid, stream = self._texts, event.tid, arguments.stream
        if stream is None and isinstance(tid, str) and tid.startswith(STREAM):
            stream = tid.removeprefix(STREAM)
        external = arguments.old_external if arguments.external is None else arguments.external
        correlation = -1 if arguments.correlation is None else arguments.correlation
        if arguments.wait_on_stream is not None:
            record = arguments.wait_on_record
            self.waits_on[correlation] = arguments.wait_on_stream, -1 if record is None else record
        inputs = -1
        if arguments.dims is not NULL and SHAPED.match(str(event.name)):
            told = (arguments.dims, arguments.types, arguments.values)
            inputs = self.inputs[f"[{', '.join(bytes(part).decode() for part in told)}]"]
        self._numbers.extend(
            (
                texts[event.cat],
                texts[event.name],
                texts[event.pid],
                texts[tid],
                nanoseconds(event.ts),
                nanoseconds(event.dur),
                stream if type(stream) is int else number(stream),
                correlation,
                -1 if external is None else external,
                inputs,
            )
        )

    def pair(self) -> None:
        """Makes one event of each begin ("B") and its end ("E"), and counts those without as `single`.

        An end belongs to the innermost open begin of its thread that has its name, or to the innermost if it has no
        name. Halves without a time count as having no other half.
        """
        open_ones: dict[Any, list[tuple[int, Event]]] = defaultdict(list)
        times = [(nanoseconds(half.ts), half) for half in self._halves]
        for time, half in sorted(times, key=lambda each: each[0]):
            of_thread = open_ones[half.pid, half.tid]
            if half.ph == "B" and time != NO_TIME:
                of_thread.append((time, half))
                continue
            fitting = [one for one in of_thread if half.name in (None, one[1].name)] if time != NO_TIME else []
            if not fitting:
                self.single += 1
                continue
            begin, event = fitting[-1]
            of_thread.remove(fitting[-1])
            duration = Decimal(time - begin) / 1000
            self.add(replace(event, ph="X", dur=duration, args=event.args or half.args))
        self.single += sum(map(len, open_ones.values()))

    def table(self) -> pandas.DataFrame:
        """The events with the columns of `Recording.events`, where NaN stands for a time that is missing.

        Raises:
            TraceError: times are not in microseconds, or lie years apart.
        """
        columns = np.frombuffer(self._numbers, "int64").reshape(-1, len(NUMBERS)).T
        values = dict(zip(NUMBERS, columns, strict=True))
        names = np.array([str(text) for text in self._texts], dtype=object)
        categories = np.array([CATEGORIES.get(text, text) for text in names], dtype=object)
        places = np.empty(len(names), dtype=object)
        places[:] = [number_or_text(text) for text in self._texts]
        begin, duration = values["begin"], values["duration"]
        known = begin != NO_TIME
        first, last = (int(begin[known].min()), int(begin[known].max())) if known.any() else (0, 0)
        if last >= LATEST_NS or last - first > LONGEST_NS:
            raise TraceError(
                f"{self.file}: its events lie {(last - first) / 86_400e9:,.0f} days apart, or a century from now. Some "
                "times are nanoseconds, or of another clock. A trace counts in microseconds: divide ts and dur by "
                "1000, or record again."
            )
        lasting = np.abs(duration) <= LONGEST_NS
        begin = begin - first
        return pandas.DataFrame(
            {
                "category": categories[values["category"]],
                "name": names[values["name"]],
                "begin": _microseconds(begin, known),
                "duration": _microseconds(duration, lasting),
                "pid": pandas.Series(places[values["pid"]]).infer_objects(),
                "tid": pandas.Series(places[values["tid"]]).infer_objects(),
                "stream": values["stream"],
                "correlation": values["correlation"],
                "end": _microseconds(begin + duration, known & lasting),
                "external": values["external"],
                "inputs": values["inputs"],
            }
        )


class _Numbered(dict[Any, int]):
    """Gives each new key the next number: every name is kept once, however many events have it."""

    def __missing__(self, key: Any) -> int:
        self[key] = place = len(self)
        return place


def nanoseconds(microseconds: Decimal | None) -> int:
    """A time as an integer, to the nearest nanosecond and at most `LATEST_NS`. None and NaN become `NO_TIME`."""
    if microseconds is None or not microseconds.is_finite() or microseconds.adjusted() > LARGEST_POWER:
        return NO_TIME
    exact = round(microseconds * 1000)
    if -LATEST_NS <= exact <= LATEST_NS:
        return exact
    return LATEST_NS if exact > 0 else -LATEST_NS


def number(value: Any) -> int:
    """An integer, also one that is written as a text, or -1 for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return -1


def number_or_text(value: Any) -> Any:
    """A process or thread, the same whether it was written as 7 or as "7", or None if it is missing."""
    if type(value) is int or value is None:
        return value
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 19 else text


def _microseconds(times: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Nanoseconds as microseconds: the nearest floats, so that equal times stay equal."""
    return np.where(known, times / 1000, np.nan)
