"""Events, one at a time -> the columns of a table: only what the tables need of each, and times in nanoseconds."""

from __future__ import annotations

from array import array
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.traces.dialects import CATEGORIES, SHAPED
from labkit.traces.parsing import TraceError

if TYPE_CHECKING:
    import pandas

LARGEST_POWER = 30  # of ten, in a time that is still a number
NO_TIME = -(1 << 62)  # in place of a time that is missing, not a number or infinite
LATEST_NS = (1 << 62) - 1  # since 1970: the year 2116. A greater time is none in microseconds
LONGEST_NS = 1 << 53  # 104 days: until then a float of microseconds is exact to the nanosecond
ROWS = 4096
STREAM = "stream "  # PyTorch 1.8 to 1.10 name the GPU's threads so


class Columns:
    """Collects complete events.

    Attributes:
        halves: the events that are only a begin or an end.
        uncategorised: how many complete events have no category.
        looks_like_gpu: the name of the first of them that ran on a stream, else None.
        waits_on: by the correlation of a call that waits for an event, the stream in which that was recorded, and the
            correlation of the call that recorded it.
        inputs: the different shapes, types and values of inputs of the operators in `SHAPED`, as text.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.halves: list[dict[str, Any]] = []
        self.uncategorised = 0
        self.looks_like_gpu: str | None = None
        self.waits_on: dict[int, tuple[int, int]] = {}
        self.inputs: dict[str, int] = _Numbered()
        self._texts = _Numbered()
        self._numbers = {
            name: array("q")
            for name in (
                *("category", "name", "pid", "tid", "begin", "duration", "stream", "correlation", "external"),
                "inputs",
            )
        }
        self._rows: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._numbers["begin"]) + len(self._rows)

    def add(self, event: Any) -> None:
        """Keeps what the tables need of an event: nothing if it is an arrow, a counter, a name or a mark.

        Raises:
            TraceError: a time, correlation or External id is no number.
        """
        if not isinstance(event, dict):
            return
        phase = event.get("ph", "X")
        if phase != "X":
            if phase == "B" or phase == "E":
                self.halves.append(event)
            return
        try:
            self._add(event)
        except (AttributeError, TypeError, ValueError) as error:
            cause = f"a time or correlation in it is no number ({error}), in the event {str(event.get('name'))[:80]!r}"
            raise TraceError(f"{self.file}: {cause}. Choose a file that torch.profiler wrote.") from error

    def _add(self, event: dict[str, Any]) -> None:
        category = event.get("cat")
        arguments = event.get("args") or {}
        if category is None:
            self.uncategorised += 1
            if "stream" in arguments and self.looks_like_gpu is None:
                self.looks_like_gpu = str(event.get("name"))
            return
        if category == "Trace":  # the span of the whole recording
            return
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
        self._rows.append(
            (
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
        )
        if len(self._rows) == ROWS:
            self._pack()

    def _pack(self) -> None:
        """Puts the newest rows into the columns: numbers of 8 bytes there, and objects of 32 here."""
        try:
            for column, values in zip(self._numbers.values(), zip(*self._rows, strict=True), strict=False):
                column.extend(values)
        except OverflowError as error:
            cause = "a stream, correlation or External id is a number of more than 64 bits"
            raise TraceError(f"{self.file}: {cause}. Choose a file that torch.profiler wrote.") from error
        self._rows = []

    def table(self) -> pandas.DataFrame:
        """The events with the columns of `Recording.events`; NaN stands for a time that is missing.

        Raises:
            TraceError: times are not in microseconds, or lie years apart.
        """
        import pandas

        self._pack()
        values = {name: np.frombuffer(column, dtype="int64") for name, column in self._numbers.items()}
        texts = [str(text) for text in self._texts]
        names = np.array(texts, dtype=object)
        categories = np.array([CATEGORIES.get(text, text) for text in texts], dtype=object)
        places = np.empty(len(texts), dtype=object)
        places[:] = [number_or_text(text) for text in self._texts]
        begin, duration = values["begin"], values["duration"].copy()
        known = begin != NO_TIME
        first, last = (int(begin[known].min()), int(begin[known].max())) if known.any() else (0, 0)
        self._check_times(first, last)
        duration[np.abs(duration) > LONGEST_NS] = NO_TIME
        begin = np.where(known, begin - first, NO_TIME)
        return pandas.DataFrame(
            {
                "category": categories[values["category"]],
                "name": names[values["name"]],
                "begin": _microseconds(begin, known),
                "duration": _microseconds(duration, duration != NO_TIME),
                "pid": pandas.Series(places[values["pid"]]).infer_objects(),
                "tid": pandas.Series(places[values["tid"]]).infer_objects(),
                "stream": values["stream"],
                "correlation": values["correlation"],
                "end": _microseconds(begin + duration, known & (duration != NO_TIME)),
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
    """A time as an integer, to the nearest nanosecond, at most `LATEST_NS`; `NO_TIME` for none, NaN or -Infinity.

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
    return exact if -LATEST_NS < exact < LATEST_NS else LATEST_NS if exact > 0 else -LATEST_NS


def whole(value: Any) -> int:
    """An integer; -1 for None.

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
    """A process or thread: the same whether it was written as 7 or as "7"; None if it is missing."""
    if type(value) is int or value is None:
        return value
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 19 else text


def _microseconds(times: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Nanoseconds as microseconds: the nearest floats, so that equal times stay equal."""
    return np.where(known, times / 1000, np.nan)
