"""Events, many at a time -> the columns of a table: only what the tables need of each, and times in nanoseconds."""

from __future__ import annotations

from array import array
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from labkit.traces.dialects import CATEGORIES, SHAPED
from labkit.traces.parsing import TraceError

LARGEST_POWER = 30  # of ten, in a time that is still a number
NO_TIME = -(1 << 62)  # in place of a time that is missing, not a number or infinite
LATEST_NS = (1 << 62) - 1  # since 1970: the year 2116. A greater time is none in microseconds
LONGEST_NS = 1 << 53  # 104 days: until then a float of microseconds is exact to the nanosecond
STREAM = "stream "  # PyTorch 1.8 to 1.10 name the GPU's threads so
NUMBERS = ("category", "name", "pid", "tid", "begin", "duration", "stream", "correlation", "external", "inputs")


class Columns:
    """Collects events.

    Attributes:
        single: how many begins and ends have no other half, known after `table`.
        uncategorised: how many complete events have no category.
        looks_like_gpu: the name of the first of them that ran on a stream, else None.
        waits_on: by the correlation of a call that waits for an event, the stream in which that was recorded, and the
            correlation of the call that recorded it.
        inputs: the different shapes, types and values of inputs of the operators in `SHAPED`, as text.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.single = self.uncategorised = 0
        self.looks_like_gpu: str | None = None
        self.waits_on: dict[int, tuple[int, int]] = {}
        self.inputs: dict[str, int] = _Numbered()
        self._halves: list[dict[str, Any]] = []
        self._texts = _Numbered()
        self._numbers = [array("q") for _ in NUMBERS]

    def __len__(self) -> int:
        return len(self._numbers[0])

    @property
    def categories(self) -> set[str]:
        """The categories of the events, as the file has them, and other texts."""
        return {text for text in self._texts if isinstance(text, str)}

    def add(self, events: list[Any]) -> None:
        """Keeps what the tables need of these events: nothing of arrows, counters, names and marks.

        Raises:
            TraceError: a time, correlation or External id is no number.
        """
        rows, event = [], None
        try:
            for event in events:
                if isinstance(event, dict):
                    phase = event.get("ph", "X")
                    if phase == "X":
                        if row := self._row(event):
                            rows.append(row)
                    elif phase == "B" or phase == "E":
                        self._halves.append(event)
            for column, values in zip(self._numbers, zip(*rows, strict=True), strict=bool(rows)):
                column.extend(values)
        except OverflowError as error:
            cause = "a stream, correlation or External id is a number of more than 64 bits"
            raise TraceError(f"{self.file}: {cause}. Choose a file that torch.profiler wrote.") from error
        except (AttributeError, TypeError, ValueError) as error:
            named = str(event.get("name") if isinstance(event, dict) else event)[:80]
            cause = f"a time or correlation in it is no number ({error}), in the event {named!r}"
            raise TraceError(f"{self.file}: {cause}. Choose a file that torch.profiler wrote.") from error

    def _row(self, event: dict[str, Any]) -> tuple[int, ...] | None:
        category = event.get("cat")
        arguments = event.get("args") or {}
        if category is None:
            self.uncategorised += 1
            if "stream" in arguments and self.looks_like_gpu is None:
                self.looks_like_gpu = str(event.get("name"))
            return None
        if category == "Trace":  # the span of the whole recording
            return None
        texts, tid, stream = self._texts, event.get("tid"), arguments.get("stream")
        if stream is None:
            stream = number(tid.removeprefix(STREAM)) if isinstance(tid, str) and tid.startswith(STREAM) else -1
        elif type(stream) is not int:
            stream = number(stream)
        external = arguments.get("External id")
        if external is None:
            external = arguments.get("external id", -1)
        correlation = arguments.get("correlation", -1)
        if "wait_on_stream" in arguments:
            source, record = arguments["wait_on_stream"], arguments.get("wait_on_cuda_event_record_corr_id")
            self.waits_on[whole(correlation)] = number(source), number(record)
        inputs = -1
        if "Input Dims" in arguments and SHAPED.match(str(event.get("name"))):
            told = (arguments.get(part) for part in ("Input Dims", "Input type", "Concrete Inputs"))
            inputs = self.inputs[repr(tuple(told))]
        return (
            texts[category],
            texts[event.get("name")],
            texts[event.get("pid")],
            texts[tid],
            nanoseconds(event.get("ts")),
            nanoseconds(event.get("dur")),
            stream,
            correlation if type(correlation) is int else whole(correlation),
            external if type(external) is int else whole(external),
            inputs,
        )

    def pair(self) -> None:
        """Makes one event of each begin ("B") and its end ("E"), and counts those without as `single`.

        An end belongs to the innermost open begin of its thread that has its name, or to the innermost if it has no
        name. Halves without a time count as having no other half.
        """
        open_ones: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        times = [(nanoseconds(half.get("ts")), half) for half in self._halves]
        complete, self._halves = [], []
        for time, half in sorted(times, key=lambda each: each[0]):
            of_thread = open_ones[half.get("pid"), half.get("tid")]
            if half["ph"] == "B" and time != NO_TIME:
                of_thread.append(half | {"ns": time})
                continue
            name = half.get("name")
            fitting = [one for one in of_thread if name in (None, one.get("name"))] if time != NO_TIME else []
            if not fitting:
                self.single += 1
                continue
            begin = fitting[-1]
            of_thread.remove(begin)
            arguments = {**(begin.get("args") or {}), **(half.get("args") or {})}
            duration = Decimal(time - begin["ns"]) / 1000
            complete.append({**begin, "ph": "X", "dur": duration, "args": arguments})
        self.single += sum(map(len, open_ones.values()))
        self.add(complete)

    def table(self) -> pandas.DataFrame:
        """The events with the columns of `Recording.events`, where NaN stands for a time that is missing.

        Raises:
            TraceError: times are not in microseconds, or lie years apart.
        """
        values = {name: np.frombuffer(column, "int64") for name, column in zip(NUMBERS, self._numbers, strict=True)}
        names = np.array([str(text) for text in self._texts], dtype=object)
        categories = np.array([CATEGORIES.get(text, text) for text in names], dtype=object)
        places = np.empty(len(names), dtype=object)
        places[:] = [number_or_text(text) for text in self._texts]
        begin, duration = values["begin"], values["duration"]
        known = begin != NO_TIME
        first, last = (int(begin[known].min()), int(begin[known].max())) if known.any() else (0, 0)
        self._check_times(first, last)
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

    def _check_times(self, first: int, last: int) -> None:
        if last >= LATEST_NS:
            raise TraceError(
                f"{self.file}: an event begins a century from now or later: its times are nanoseconds, or numbers of "
                "another clock. A trace counts in microseconds: divide ts and dur by 1000, or record again."
            )
        if last - first > LONGEST_NS:
            raise TraceError(
                f"{self.file}: its first and its last event are {(last - first) / 86_400e9:.0f} days apart. Either the "
                "clock was set while it was recorded, or its times are in different units (host in microseconds, GPU "
                "in nanoseconds) or of different clocks. Record again, or bring all of ts and dur to microseconds."
            )


class _Numbered(dict[Any, int]):
    """Gives each new key the next number: every name is kept once, however many events have it."""

    def __missing__(self, key: Any) -> int:
        self[key] = place = len(self)
        return place


def nanoseconds(microseconds: Any) -> int:
    """A time as an integer, to the nearest nanosecond and at most `LATEST_NS`.

    None, NaN and -Infinity become `NO_TIME`.

    Raises:
        ValueError: it is no number.
    """
    if type(microseconds) is str and microseconds[-4:-3] == ".":  # as Kineto writes them: three decimals
        exact = int(microseconds[:-4] + microseconds[-3:])
    elif type(microseconds) is int:
        exact = microseconds * 1000
    elif microseconds is None:
        return NO_TIME
    else:
        try:
            fraction = Decimal(microseconds)
        except (TypeError, ArithmeticError) as error:
            raise ValueError(f"{microseconds!r}") from error
        if not fraction.is_finite() or fraction.adjusted() > LARGEST_POWER:
            return NO_TIME
        exact = round(fraction * 1000)
    if -LATEST_NS <= exact <= LATEST_NS:  # a comparison is many times as fast as min and max
        return exact
    return LATEST_NS if exact > 0 else -LATEST_NS


def whole(value: Any) -> int:
    """An integer, or -1 for None.

    Raises:
        ValueError: it is none.
    """
    if value is None:
        return -1
    try:
        return int(Decimal(value)) if isinstance(value, str) else int(value)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"{value!r}") from error


def number(value: Any) -> int:
    """An integer, or -1 for anything that is none."""
    try:
        return whole(value)
    except ValueError:
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
