"""Trace files -> events; and errors for every bad file."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import pandas

SUFFIXES = (".json", ".json.gz")
# GPU work by the category of its event. A stream alone does not identify it: Triton's events on the host have one, and
# so have waits (cuda_sync) and copies of the host's ranges (gpu_user_annotation).
GPU_WORK = {"kernel": "compute", "gpu_memcpy": "memory", "gpu_memset": "memory"}


class TraceError(LabkitError):
    """A trace cannot be read, or lacks the events that a table needs."""


@dataclass
class Recording:
    """The content of one trace file.

    Attributes:
        file: the path it was read from.
        rank: the rank of the recorded process; 0 if the file does not say.
        meta: the file's top-level entries other than the events.
        events: one event a row: category, name, pid, tid, stream and correlation (-1 without), and begin, duration
            and end in microseconds since the first event.
    """

    file: Path
    rank: int
    meta: dict[str, Any]
    events: pandas.DataFrame


def read(path: Path | str) -> dict[int, Recording]:
    """Reads a trace, or all traces in a folder, one of each rank. The result is sorted by rank.

    Raises:
        TraceError: there is no trace, a file is damaged or is no trace, or two files have the same rank.
    """
    recordings: dict[int, Recording] = {}
    for file in trace_files(Path(path)):
        recording = read_file(file)
        earlier = recordings.setdefault(recording.rank, recording)
        if earlier is not recording:
            raise TraceError(
                f"{earlier.file} and {file}: both are of rank {recording.rank} (the rank is 0 where distributedInfo "
                "does not say). A folder is read as one run with one file a rank. Open one of them, or move one away."
            )
    return dict(sorted(recordings.items()))


def trace_files(path: Path) -> list[Path]:
    """The file, or the files in the folder that have the name of a trace."""
    if not path.exists():
        raise TraceError(f"{path}: there is no such file or folder. Check the path; `labkit.record` makes a trace.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
        if not files:
            cause = "no trace among the files of this folder" if any(path.iterdir()) else "this folder is empty"
            raise TraceError(f"{path}: {cause}. A trace's name ends in .json or .json.gz; `labkit.record` makes one.")
        return files
    if not path.name.endswith(SUFFIXES):
        raise TraceError(f"{path}: a trace's name ends in .json or .json.gz. Choose such a file, or rename it.")
    return [path]


def read_file(file: Path) -> Recording:
    """Reads one trace; see `read`."""
    trace = read_json(file)
    events = [event for event in trace["traceEvents"] if isinstance(event, dict) and event.get("dur") is not None]
    events = [event for event in events if event.get("cat", "Trace") != "Trace"]  # the span of the recording
    if not events:
        raise TraceError(
            f"{file}: no complete events in it, those with a duration (dur) and a category (cat). Record at least one "
            "step."
        )
    try:
        table = tabulated(events)
    except (AttributeError, TypeError, ValueError) as error:
        cause = f"a time or correlation in it is no number ({error})"
        raise TraceError(f"{file}: {cause}. Choose a file that torch.profiler wrote.") from error
    check_sound(file, table)
    meta = {name: value for name, value in trace.items() if name != "traceEvents"}
    return Recording(file, rank_of(meta), meta, table)


def read_json(file: Path) -> dict[str, Any]:
    """The content of a file that has the form of a trace."""
    again = "Record it again, or copy it again from its source."
    try:
        content = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
    except (OSError, EOFError, zlib.error) as cause:
        raise TraceError(
            f"{file}: cannot be read ({cause}): it is damaged, cut off or not compressed, or closed to you. {again}"
        ) from cause
    if not content.strip():
        raise TraceError(f"{file}: the file is empty. {again}")
    try:
        trace = json.loads(content)
    except ValueError as cause:
        raise TraceError(f"{file}: no JSON, or cut off ({cause}). {again}") from cause
    if isinstance(trace, list):
        raise TraceError(f'{file}: a bare list of events, which HTA cannot read. Save it as {{"traceEvents": [...]}}.')
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise TraceError(
            f'{file}: JSON, but no trace: there is no list of "traceEvents" in it. Choose a file made by '
            "`labkit.record`."
        )
    return trace


def tabulated(events: list[dict[str, Any]]) -> pandas.DataFrame:
    """The events as a table with the columns of `Recording.events`; a time that is missing is NaN.

    Raises:
        AttributeError, TypeError, ValueError: a time or correlation is no number.
    """
    import pandas

    arguments = [event.get("args") or {} for event in events]
    columns = {
        "category": [str(event["cat"]) for event in events],
        "name": [str(event.get("name")) for event in events],
        "begin": np.array([event.get("ts") for event in events], dtype=float),
        "duration": np.array([event["dur"] for event in events], dtype=float),
        "pid": [event.get("pid") for event in events],
        "tid": [event.get("tid") for event in events],
        "stream": pandas.to_numeric([of_event.get("stream") for of_event in arguments], errors="coerce"),
        "correlation": np.array([of_event.get("correlation", -1) for of_event in arguments], dtype="int64"),
    }
    table = pandas.DataFrame(columns)
    table["begin"] -= table["begin"].min()
    return table.assign(end=table["begin"] + table["duration"], stream=table["stream"].fillna(-1).astype("int64"))


def check_sound(file: Path, events: pandas.DataFrame) -> None:
    """Raises `TraceError` for events that would make every number wrong, such as a kernel without a stream."""
    on_gpu = events["category"].isin(GPU_WORK)
    for fault, bad in (
        ("a negative duration", events["duration"] < 0),
        ("no time, or an infinite one", ~np.isfinite(events["end"])),
        ("no stream, though they ran on the GPU", on_gpu & (events["stream"] < 0)),
    ):
        if bad.any():
            raise TraceError(
                f"{file}: {bad.sum()} of {len(events)} events have {fault}, the first of them "
                f"{events['name'][bad].iloc[0][:80]!r}. No profiler writes such events. Record again, or "
                "use the file as it was before it was edited."
            )


def rank_of(meta: dict[str, Any]) -> int:
    """The rank that a trace states, else 0."""
    information = meta.get("distributedInfo")
    rank = information.get("rank") if isinstance(information, dict) else None
    return rank if isinstance(rank, int) else 0
