"""Reads the events of trace files, with an error for every bad file."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from labtrace.columns import Columns, number
from labtrace.dialects import OTHER_DEVICES
from labtrace.parsing import NoTraceError, parse
from labtrace.parsing import TraceError as TraceError

SUFFIXES = (".json", ".json.gz")
# GPU work by the category of its event. A stream alone does not identify it: Triton's events on the host have one, and
# so have waits (cuda_sync) and copies of the host's ranges (gpu_user_annotation).
GPU_WORK = {"kernel": "compute", "gpu_memcpy": "memory", "gpu_memset": "memory"}
CALLS = ("cuda_runtime", "cuda_driver")  # of the driver: Triton's launches
ON_HOST = ("cpu_op", "user_annotation", *CALLS)


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

    Each time is the float nearest to a whole number of nanoseconds, and the nanoseconds are exact: equal times are
    equal, and `round(1000 * begin)` gives them back.

    Attributes:
        file: the path it was read from.
        rank: the rank of the recorded process, 0 if the file does not say.
        meta: the file's top-level entries other than the events.
        events: the table above.
        inputs: the different shapes, types and values of inputs, as text. See `labtrace.achieved`.
        waits_on: what calls waited for that wait for an event: see `labtrace.columns.Columns`.
        left_out: how many entries of the file are no row of `events` though they might have been, by the reason.
        other_device: the device that it was recorded on if that is neither a CPU nor a GPU, else "".
    """

    file: Path
    rank: int
    meta: dict[str, Any]
    events: pandas.DataFrame
    left_out: dict[str, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    waits_on: dict[int, tuple[int, int]] = field(default_factory=dict)
    other_device: str = ""

    @property
    def stamp(self) -> dict[str, Any] | None:
        """The stamp that `labkit.record` or `write_trace` put into the file, or None."""
        return entry(self.meta, "labkit") or None

    @property
    def device(self) -> str:
        """The name of the recorded device, as the file says it."""
        properties = self.meta.get("deviceProperties")
        first = properties[0] if isinstance(properties, list) and properties else {}
        name = (self.stamp or {}).get("device") or (first.get("name") if isinstance(first, dict) else None)
        return str(name or "unknown GPU")


class TraceWarning(UserWarning):
    """A file of a folder is left out."""


def read(path: Path | str) -> dict[int, Recording]:
    """Reads a trace, or all traces in a folder, one of each rank. The result is sorted by rank.

    Raises:
        TraceError: there is no trace, a file is damaged, or two files have the same rank.

    Warns:
        TraceWarning: a file of the folder is JSON, but no trace.
    """
    recordings: dict[int, Recording] = {}
    files = trace_files(path)
    others: list[NoTraceError] = []
    for file in files:
        try:
            recording = read_file(file)
        except NoTraceError as error:
            others.append(error)
            continue
        earlier = recordings.setdefault(recording.rank, recording)
        if earlier is not recording:
            raise TraceError(
                f"{earlier.file} and {file}: both are of rank {recording.rank} (the rank is 0 where distributedInfo "
                "does not say). A folder is read as one run with one file a rank. Open one of them, or move one away."
            )
    if not recordings:
        raise others[0]
    for no_trace in others:
        warnings.warn(f"Left out of the folder: {no_trace}", TraceWarning, stacklevel=4)
    return dict(sorted(recordings.items()))


def trace_files(path: Path | str) -> list[Path]:
    """The file, or the files in the folder that have the name of a trace.

    Raises:
        TraceError: there are none.
    """
    path = Path(path)
    if not path.exists():
        raise TraceError(f"{path}: there is no such file or folder. Check the path; `labkit.record` makes a trace.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
        if not files:
            cause = "no trace among the files of this folder" if any(path.iterdir()) else "this folder is empty"
            raise TraceError(f"{path}: {cause}. A trace's name ends in .json or .json.gz; `labkit.record` makes one.")
    elif not path.name.endswith(SUFFIXES):
        raise TraceError(f"{path}: a trace's name ends in .json or .json.gz. Choose such a file, or rename it.")
    else:
        files = [path]
    return files


def read_file(file: Path) -> Recording:
    """Reads one trace, as `read` does."""
    columns = Columns(file)
    try:
        meta = parse(file, columns.add)
        columns.pair()
    except OverflowError as error:
        raise TraceError(
            f"{file}: a stream, correlation or External id is a number of more than 64 bits. Choose a file that "
            "torch.profiler wrote."
        ) from error
    _check_present(file, columns)
    table = columns.table()
    needed = table["category"].isin([*GPU_WORK, *ON_HOST])
    timeless = ~needed & ~np.isfinite(table["end"])
    if timeless.any() and not timeless.all():
        table = table[~timeless].reset_index(drop=True)
    check_sound(file, table)
    incomplete = {
        "begins and ends without the other half": columns.single,
        "events without a category": columns.uncategorised,
    }
    left_out = {reason: many for reason, many in incomplete.items() if many}
    devices = [name for name, is_of in OTHER_DEVICES.items() if any(map(re.compile(is_of).match, columns.categories))]
    rank = max(0, number(entry(meta, "distributedInfo").get("rank")))
    return Recording(file, rank, meta, table, left_out, list(columns.inputs), columns.waits_on, "".join(devices[:1]))


def _check_present(file: Path, columns: Columns) -> None:
    """Raises `TraceError` if no event can be used."""
    if not len(columns):
        without = f" {columns.uncategorised} have a duration but no category." if columns.uncategorised else ""
        without += f" {columns.single} are a begin or an end without the other." if columns.single else ""
        raise TraceError(
            f"{file}: no complete events in it, those with a duration (dur) and a category (cat).{without} Record at "
            "least one step with torch.profiler."
        )


def check_sound(file: Path, events: pandas.DataFrame) -> None:
    """Raises `TraceError` for events that would make every number wrong, such as a kernel without a stream."""
    on_gpu, on_host = events["category"].isin(GPU_WORK), events["category"].isin(ON_HOST)
    for fault, bad in (
        ("a negative duration", events["duration"] < 0),
        ("no time, or an infinite one, for their begin (ts) or duration (dur)", ~np.isfinite(events["end"])),
        ("no stream, though they ran on the GPU", on_gpu & (events["stream"] < 0)),
        ("no thread (tid), though they ran on the host", on_host & events["tid"].isna()),
    ):
        if bad.any():
            raise TraceError(
                f"{file}: {bad.sum()} of {len(events)} events have {fault}, the first of them "
                f"{events['name'][bad].iloc[0][:80]!r}. No profiler writes such events. Record again, or "
                "use the file as it was before it was edited."
            )


def entry(meta: dict[str, Any], name: str) -> dict[str, Any]:
    """An entry of the file that is a dictionary, empty if it is none."""
    found = meta.get(name)
    return found if isinstance(found, dict) else {}
