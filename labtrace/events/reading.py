"""Reads trace files: from a path to the events of each rank, with an error for every bad file.

`parse` reads the entries of one file, `Columns` keeps of each event only what the tables need, and `read` makes a
`Recording` of every file of a folder.
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
import zlib
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas

from labtrace.errors import TraceError, check_exists
from labtrace.events.dialects import CALLS, CATEGORIES, GPU_WORK, ON_HOST, SHAPED, copy_name
from labtrace.events.others import NoTraceError, check_own
from labtrace.events.repair import strict

SUFFIXES = (".json", ".json.gz")
NULL = msgspec.Raw(b"null")
GZIP = b"\x1f\x8b"  # begins a compressed file
AGAIN = "Record it again, or copy it again from its source."
LARGEST_POWER = 30  # of ten, in a time that is still a number
NO_TIME = -(1 << 62)  # in place of a time that is missing, not a number or infinite
LATEST_NS = (1 << 62) - 1  # since 1970: the year 2116. A later time cannot be in microseconds
LONGEST_NS = 1 << 53  # 104 days: until then a float of microseconds is exact to the nanosecond
EARLY_NS = 10**5  # so long before its launch no kernel begins
UNSET_NS = 60 * 10**9  # if all other events are later than a minute, a begin of 0 was not written
BEGINNING = 1 << 20  # bytes in which a bare list of events, or the file of another tool, shows what it is
STREAM = "stream "  # PyTorch 1.8 to 1.10 name the GPU's threads so


class TraceWarning(UserWarning):
    """A file of a folder is left out."""


@dataclass
class Recording:
    """The content of one trace file.

    `events` has a row for each event:

    | column | unit | meaning |
    |---|---|---|
    | category | | by the name that PyTorch gives it today |
    | name, pid, tid | | |
    | stream, correlation | | -1 without |
    | external | | "External id", -1 without |
    | begin, duration, end | microseconds | since the first event |
    | inputs | | the place of the operator's inputs in the list of this name, -1 without |
    | blocks_per_sm | | blocks of threads of a kernel for each multiprocessor, NaN without |
    | message, turn | | of communication: "allreduce 2", with the group of ranks, "" without, and "Seq", -1 without |
    | note | | of a kernel in a CUDA graph its annotation, of AMD's launches the name of the kernel, or "" |

    Each time is the float nearest to a whole number of nanoseconds, and the nanoseconds are exact: equal times are
    equal, and `round(1000 * begin)` gives them back.

    Attributes:
        file: the path it was read from.
        rank: the rank of the recorded process, 0 if neither the file nor its name says it.
        meta: the file's top-level entries other than the events.
        events: the table above.
        inputs: the different shapes, types and values of inputs, as text. See `labtrace.tables.achieved`.
        left_out: how many events of the file are not in the table, by the reason.
        gpus: how many the process used. The events are those of one of them: see `labtrace.events.rank.ranks_of`.
        twin: the `Rank` whose launches name the kernels in CUDA graphs here. Then `events` has the column `twin`, the
            place in its `operators` of the call that launched a kernel's twin, or -1.
    """

    file: Path
    rank: int
    meta: dict[str, Any]
    events: pandas.DataFrame
    left_out: dict[str, int]
    inputs: list[str]
    gpus: int = 1
    twin: Any = None

    @property
    def stamp(self) -> dict[str, Any] | None:
        """The stamp that `labkit.record` or `write_trace` put into the file, or None."""
        return entry(self.meta, "labkit") or None

    @property
    def device(self) -> str:
        """The name of the recorded device, as the file says it."""
        return str((self.stamp or {}).get("device") or self._properties.get("name") or "unknown GPU")

    @property
    def before_ampere(self) -> bool:
        """Whether the file says that the GPU is NVIDIA's and has a compute capability below 8."""
        return 0 < number(self._properties.get("computeMajor")) < 8

    @property
    def _properties(self) -> dict[str, Any]:
        """Of the first GPU."""
        properties = self.meta.get("deviceProperties")
        first = properties[0] if isinstance(properties, list) and properties else {}
        return first if isinstance(first, dict) else {}


def read(path: Path | str) -> dict[int, Recording]:
    """Reads a trace, or all traces in a folder, one of each rank. The result is sorted by rank.

    Raises:
        TraceError: there is no trace, a file is damaged, or two files have the same rank.

    Warns:
        TraceWarning: a file of the folder is JSON, but no trace.
    """
    recordings: dict[int, Recording] = {}
    others: list[NoTraceError] = []
    for file in trace_files(path):
        try:
            recording = read_file(file)
        except NoTraceError as error:
            others.append(error)
            continue
        earlier = recordings.setdefault(recording.rank, recording)
        if earlier is not recording:
            raise TraceError(
                f"{earlier.file} and {file}: both are of rank {recording.rank} (0 where neither distributedInfo nor a "
                "name such as rank0.json says it). Open one of them, or move one away."
            )
    if not recordings:
        raise others[0]
    for no_trace in others:
        warnings.warn(f"Left out of the folder: {no_trace}", TraceWarning, stacklevel=3)
    return dict(sorted(recordings.items()))


def trace_files(path: Path | str) -> list[Path]:
    """The file, or the files in the folder that have the name of a trace.

    Raises:
        TraceError: there are none.
    """
    path = Path(path)
    check_exists(path, "a trace, .json or .json.gz, or a folder of traces", TraceError)
    if path.is_dir():
        if files := sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.name[0] != "."):
            return files
        cause = "no trace among the files of this folder" if any(path.iterdir()) else "this folder is empty"
        raise TraceError(f"{path}: {cause}. A trace's name ends in .json or .json.gz. `labtrace watch` records one.")
    if not path.name.endswith(SUFFIXES):
        check_own(path)
        raise TraceError(f"{path}: a trace's name ends in .json or .json.gz. Choose such a file, or rename it.")
    return [path]


def read_file(file: Path) -> Recording:
    """Reads one trace, as `read` does."""
    columns = Columns(file)
    meta = parse(file, columns.add)
    table = columns.table()
    needed = table["category"].isin([*GPU_WORK, *ON_HOST])
    kept = needed | np.isfinite(table["end"])
    columns.left_out |= Counter({"events without a time or a duration": int((~kept).sum())})
    table = table[kept].reset_index(drop=True)
    if table.empty:
        left_out = "".join(f" {many} are {reason}." for reason, many in columns.left_out.items())
        raise TraceError(
            f"{file}: no complete events in it, with a duration (dur) and a category (cat).{left_out} {AGAIN}"
        )
    check_sound(file, table)
    return Recording(
        file=file,
        rank=max(0, number(entry(meta, "distributedInfo").get("rank", rank_of_name(file.name)))),
        meta=meta,
        events=table,
        left_out=columns.left_out,
        inputs=list(columns.inputs),
    )


def rank_of_name(name: str) -> int:
    """The number that a file's name gives for the rank, such as 12 for "trace_rank_12.json.gz", or -1."""
    found = re.search(r"(?i)(?<![a-z])rank[-_]?(\d+)", name)
    return int(found[1]) if found else -1


def check_sound(file: Path, events: pandas.DataFrame) -> None:
    """Raises `TraceError` for events that would make every number wrong."""
    for fault, bad in (
        ("a negative duration", events["duration"] < 0),
        ("no time, or an infinite one, for their begin (ts) or duration (dur)", ~np.isfinite(events["end"])),
    ):
        if bad.any():
            raise TraceError(
                f"{file}: {bad.sum()} of {len(events)} events have {fault}, the first of them "
                f"{events['name'][bad].iloc[0][:80]!r}. No profiler writes such events. {AGAIN}"
            )


def entry(meta: dict[str, Any], name: str) -> dict[str, Any]:
    """An entry of the file that is a dictionary, empty if it is none."""
    found = meta.get(name)
    return found if isinstance(found, dict) else {}


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that tables need, or None for those that it does not have."""

    stream: Any = None
    queue: Any = msgspec.field(name="sycl queue", default=None)  # Intel's stream
    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    old_external: int | None = msgspec.field(name="external id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NULL)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NULL)
    copy: Any = msgspec.field(name="copy kind", default=None)
    source: Any = msgspec.field(name="src kind", default=None)
    target: Any = msgspec.field(name="dst kind", default=None)
    blocks: Any = msgspec.field(name="blocks per SM", default=None)
    message: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default="")
    turn: Any = msgspec.field(name="Seq", default=None)
    kernel: Any = None
    module: Any = msgspec.field(name="module_fqn", default=None)
    marked: Any = msgspec.field(name="name", default=None)
    annotation: Any = None


class Event(msgspec.Struct, gc=False):
    """An event of a trace. Its times are in microseconds: since 1970 these have more digits than a float."""

    ph: str = "X"
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: Arguments | None = None


def parse(file: Path, on_event: Callable[[Event], None]) -> dict[str, Any]:
    """Calls `on_event` with each entry of the list "traceEvents", and returns the file's other entries.

    Raises:
        TraceError: the file cannot be read, is no JSON, or has no list of events.
    """
    try:
        text = file.read_bytes()
        if text.startswith(GZIP):  # whatever the name: browsers unpack files, and tools pack them
            text = gzip.decompress(text)
    except (OSError, EOFError, zlib.error) as cause:
        raise TraceError(f"{file}: damaged, cut off or not yours ({cause}). {AGAIN}") from cause
    if not text.isascii():  # of another encoding, or of several: a path may be in the system's
        text = text.decode(json.detect_encoding(text), "replace").encode()
    text = text.strip()
    if not text:
        raise TraceError(f"{file}: the file is empty. {AGAIN}")
    if b'"cat"' not in (beginning := text[:BEGINNING]):
        check_own(file, beginning)
    try:
        bare = text.startswith(b"[") and b'"ph"' in beginning
        meta = _entries(b'{"traceEvents": %b}' % text if bare else text)
        events = meta.pop("traceEvents", NULL)
        if memoryview(events)[:1] == b"[":
            decode = msgspec.json.Decoder(Event, strict=False).decode
            for event in msgspec.json.decode(events, type=list[msgspec.Raw]):
                on_event(decode(event))
            return {name: msgspec.json.decode(entry) for name, entry in meta.items()}
    except (msgspec.ValidationError, OverflowError) as cause:  # OverflowError: a number of more than 64 bits
        raise TraceError(f"{file}: an event in it is not one that torch.profiler writes ({cause}). {AGAIN}") from cause
    except (ValueError, RecursionError) as cause:
        raise TraceError(f"{file}: no JSON, or cut off ({cause}). None of its events is read. {AGAIN}") from cause
    raise NoTraceError(f'{file}: JSON, but no trace of torch.profiler: there is no list of "traceEvents" in it.')


def _entries(text: bytes) -> dict[str, msgspec.Raw]:
    """The entries of the object that a file is, not decoded yet, or none if the file is something else."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return {}
    except msgspec.DecodeError:
        return _entries(strict(text))


NO_ARGUMENTS = Arguments()
NUMBERS = "category name pid tid begin duration stream correlation external inputs message turn blocks note".split()
MILLION = 10**6  # blocks for each multiprocessor are kept in millionths


class Columns:
    """Collects events.

    Attributes:
        left_out: how many events could not be kept, by the reason.
        inputs: the different shapes, types and values of inputs of the operators in `SHAPED`, as JSON.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.left_out: Counter[str] = Counter()
        self.inputs: dict[str, int] = _Numbered()
        self._texts = _Numbered()
        self._numbers = array("q")  # NUMBERS of one event after another

    def add(self, event: Event) -> None:
        """Keeps the parts of this event that the tables need, and drops arrows, counters, names and marks.

        Raises:
            OverflowError: a stream, correlation or External id has more than 64 bits.
        """
        if event.ph in ("B", "E"):  # torch.profiler writes complete events ("X") only
            self.left_out["begins and ends without a duration"] += 1
        if event.ph != "X" or event.cat == "Trace":  # the span of the whole recording
            return
        if not event.cat:
            self.left_out["events without a category"] += 1
            return
        arguments = event.args or NO_ARGUMENTS
        texts, tid, stream = self._texts, event.tid, arguments.stream
        stream = arguments.queue if stream is None else stream
        if stream is None and isinstance(tid, str) and tid.startswith(STREAM):
            stream = tid.removeprefix(STREAM)
        external = arguments.old_external if arguments.external is None else arguments.external
        correlation = -1 if arguments.correlation is None else arguments.correlation
        name = event.name if arguments.copy is None else copy_name(arguments.copy, arguments.source, arguments.target)
        note = arguments.kernel
        if event.cat in GPU_WORK:
            note = arguments.module or arguments.marked or arguments.annotation
        inputs = -1
        if arguments.dims is not NULL and SHAPED.match(str(event.name)):
            parts = (arguments.dims, arguments.types, arguments.values)
            inputs = self.inputs[f"[{', '.join(bytes(part).decode() for part in parts)}]"]
        self._numbers.extend(
            (
                texts[event.cat],
                texts[name],
                texts[event.pid],
                texts[tid],
                nanoseconds(event.ts),
                nanoseconds(event.dur),
                stream if type(stream) is int else number(stream),
                correlation,
                -1 if external is None else external,
                inputs,
                texts[f"{arguments.message} {arguments.group}" if arguments.message else ""],
                number(arguments.turn),
                round(MILLION * arguments.blocks) if isinstance(arguments.blocks, int | float) else -1,
                texts[str(note or "")],
            )
        )

    def table(self) -> pandas.DataFrame:
        """The events with the columns of `Recording.events`, where NaN stands for a time that is missing.

        Raises:
            TraceError: times are not in microseconds, or lie years apart.
        """
        columns = np.frombuffer(self._numbers, "int64").reshape(-1, len(NUMBERS))
        values = dict(zip(NUMBERS, columns.T, strict=True))
        names = np.array([str(text) for text in self._texts], dtype=object)
        categories = np.array([CATEGORIES.get(text, text) for text in names], dtype=object)
        unset = self._unset(values, categories[values["category"]])
        if unset.any():
            self.left_out["events without a time (ts is 0)"] += int(unset.sum())
            values = {name: column[~unset] for name, column in values.items()}
        places = np.empty(len(names), dtype=object)
        places[:] = [number_or_text(text) for text in self._texts]
        begin, duration = values["begin"], values["duration"]
        known = begin != NO_TIME
        first, last = (int(begin[known].min()), int(begin[known].max())) if known.any() else (0, 0)
        if last >= LATEST_NS or last - first > LONGEST_NS:
            apart = f"lie {(last - first) / 86_400e9:,.0f} days apart"
            strange = "are a century from now" if last >= LATEST_NS else apart
            raise TraceError(f"{self.file}: its events {strange}. If these are nanoseconds, divide ts and dur by 1000.")
        lasting = np.abs(duration) <= LONGEST_NS
        begin = begin - first
        texts = {name: names[values[name]] for name in ("name", "message", "note")}
        processes = {name: pandas.Series(places[values[name]]).infer_objects() for name in ("pid", "tid")}
        times = {"begin": _microseconds(begin, known), "duration": _microseconds(duration, lasting)}
        blocks = values.pop("blocks")
        return pandas.DataFrame(
            {
                **values,
                **texts,
                **processes,
                **times,
                "category": categories[values["category"]],
                "end": _microseconds(begin + duration, known & lasting),
                "blocks_per_sm": np.where(blocks < 0, np.nan, blocks / MILLION),
            }
        )

    @staticmethod
    def _unset(values: dict[str, np.ndarray], categories: np.ndarray) -> np.ndarray:
        """Which events have a begin of 0 because none was written: all others, or their own launch, are later."""
        begin, launch = values["begin"], values["correlation"]
        others = begin[begin > 0]
        far = len(others) > 0 and others.min() > UNSET_NS
        launched = launch[np.isin(categories, CALLS) & (begin > EARLY_NS)]
        return (begin == 0) & (far | (np.isin(categories, [*GPU_WORK]) & np.isin(launch, launched)))


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
