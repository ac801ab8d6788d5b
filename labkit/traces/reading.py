"""Trace files -> events, through Holistic Trace Analysis (HTA) without its rounding; and errors for every bad file."""

from __future__ import annotations

import gzip
import json
import logging
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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
    try:
        from hta.common.trace_parser import parse_trace_dataframe
        from hta.configs.parser_config import ParserConfig
    except ImportError as error:
        raise LabkitError(
            f"Reading traces needs Holistic Trace Analysis ({error}). Install it under its new name: "
            "pip install traceinsight"
        ) from error
    with unrounded_and_quiet():
        try:
            arguments = ParserConfig.get_minimum_args()  # stream and correlation among them
            meta, events, symbols = parse_trace_dataframe(str(file), ParserConfig(arguments))
            events = tidy(events, symbols.get_sym_table()) if len(events) else events
        except Exception as error:  # HTA fails in many ways, and none names the file
            raise TraceError(f"{file}: {why_unreadable(file, error)}") from error
    if events.empty:
        raise TraceError(f"{file}: {why_unreadable(file)}")
    check_sound(file, events)
    return Recording(file, rank_of(meta), meta, events)


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
    """The rank that a trace states, else 0. HTA searches the text for the rank, and misses it in compact JSON."""
    information = meta.get("distributedInfo")
    rank = information.get("rank") if isinstance(information, dict) else None
    return rank if isinstance(rank, int) else 0


@contextmanager
def unrounded_and_quiet() -> Iterator[None]:
    """Inside, HTA does not round times, does not log every file, and does not warn of pandas' next version.

    By default HTA rounds nanoseconds to microseconds: on a real trace the idle time came out 57% too high. HTA reads
    its environment variable for rounding only once, so we set the option itself.
    """
    from hta.configs.config import logger
    from hta.configs.env_options import HTAEnvOptions

    options = HTAEnvOptions.instance()
    before = options.disable_ns_rounding(), logger.level
    options.set_disable_ns_rounding(True)
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        options.set_disable_ns_rounding(before[0])
        logger.setLevel(before[1])


def tidy(events: pandas.DataFrame, symbols: list[str]) -> pandas.DataFrame:
    """HTA's events with names in place of symbols, and times since the first event; columns as in `Recording`."""
    import pandas

    decoded = pandas.Series(symbols, dtype=object)
    begin = events["ts"].astype("float64") - events["ts"].min()
    columns = {
        "category": decoded.reindex(events["cat"]).to_numpy(),
        "name": decoded.reindex(events["name"]).map(str).to_numpy(),
        "begin": begin.to_numpy(),
        "duration": events["dur"].astype("float64").to_numpy(),
        "end": (begin + events["dur"]).to_numpy(),
        "pid": events["pid"].to_numpy(),
        "tid": events["tid"].to_numpy(),
    }
    for number in ("stream", "correlation"):  # HTA makes no such column if no event has arguments
        columns[number] = events[number].to_numpy(dtype="int64") if number in events else -1
    return pandas.DataFrame(columns)


def why_unreadable(file: Path, error: Exception | None = None) -> str:
    """The reason why HTA found no events in `file`, and a remedy. `error` is the exception that HTA raised, if any."""
    again = "Record it again, or copy it again from its source."
    try:
        content = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
    except (OSError, EOFError, zlib.error) as cause:
        return f"cannot be read ({cause}): it is damaged, cut off or not compressed, or closed to you. {again}"
    if not content.strip():
        return f"the file is empty. {again}"
    try:
        trace = json.loads(content)
    except ValueError as cause:
        return f"no JSON, or cut off ({cause}). {again}"
    if isinstance(trace, list):
        return 'a bare list of events, which HTA cannot read. Save it as {"traceEvents": [...]}.'
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return 'JSON, but no trace: there is no list of "traceEvents" in it. Choose a file made by `labkit.record`.'
    events = [event for event in trace["traceEvents"] if isinstance(event, dict) and "dur" in event]
    if not any(event.get("cat", "Trace") != "Trace" for event in events):  # "Trace" marks the span of the recording
        return "no complete events in it, those with a duration (dur) and a category (cat). Record at least one step."
    return f"HTA cannot read it ({type(error).__name__}: {error}). Choose a file that torch.profiler wrote."
