"""Trace files -> events, through Holistic Trace Analysis (HTA), with rounding off; every way a file can be bad."""

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
# What runs on a GPU, by the category of its event. A stream alone does not tell: the host's events of Triton have one,
# and so have waits (cuda_sync) and copies of the host's ranges (gpu_user_annotation).
GPU_WORK = {"kernel": "compute", "gpu_memcpy": "memory", "gpu_memset": "memory"}


class TraceError(LabkitError):
    """A trace cannot be read, or does not hold what a table needs."""


@dataclass
class Recording:
    """What one file holds.

    Attributes:
        file: where it was read.
        rank: of the process that was recorded; 0 if the file does not say.
        meta: what the file holds beside its events.
        events: one event a row: category, name, pid, tid, stream and correlation (-1 without), and begin, duration
            and end in microseconds since the first event.
    """

    file: Path
    rank: int
    meta: dict[str, Any]
    events: pandas.DataFrame


def read(path: Path | str) -> dict[int, Recording]:
    """Reads a trace, or all traces in a folder, one of each rank; by rank, in its order.

    Raises:
        TraceError: there is no trace, a file is damaged or no trace, or two are of one rank.
    """
    recordings: dict[int, Recording] = {}
    for file in trace_files(Path(path)):
        recording = read_file(file)
        earlier = recordings.setdefault(recording.rank, recording)
        if earlier is not recording:
            raise TraceError(
                f"{earlier.file} and {file}: both are of rank {recording.rank} (the rank is 0 where distributedInfo "
                "does not say). A folder is read as one run, one file a rank: open one of them, or move one away."
            )
    return dict(sorted(recordings.items()))


def trace_files(path: Path) -> list[Path]:
    """The file, or those in the folder that are named as traces are."""
    if not path.exists():
        raise TraceError(f"{path}: there is no such file or folder. Is the path right? `labkit.record` makes a trace.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
        if not files:
            what = "no trace among the files of this folder" if any(path.iterdir()) else "this folder is empty"
            raise TraceError(f"{path}: {what}. A trace's name ends in .json or .json.gz; `labkit.record` makes one.")
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
            raise TraceError(f"{file}: {what_is_wrong(file, error)}") from error
    if events.empty:
        raise TraceError(f"{file}: {what_is_wrong(file)}")
    check_sound(file, events)
    return Recording(file, rank_of(meta), meta, events)


def check_sound(file: Path, events: pandas.DataFrame) -> None:
    """Raises `TraceError` for events that would make every number wrong: without a time, or without a stream."""
    on_gpu = events["category"].isin(GPU_WORK)
    for what, bad in (
        ("a negative duration", events["duration"] < 0),
        ("no time, or an infinite one", ~np.isfinite(events["end"])),
        ("no stream, though they ran on the GPU", on_gpu & (events["stream"] < 0)),
    ):
        if bad.any():
            raise TraceError(
                f"{file}: {bad.sum()} of {len(events)} events have {what}, the first of them "
                f"{events['name'][bad].iloc[0][:80]!r}. No profiler writes that: record anew, or take the file as it "
                "was before it was edited."
            )


def rank_of(meta: dict[str, Any]) -> int:
    """The rank a trace says it is of; 0 if it says none. HTA searches the text for it and misses compact JSON's."""
    information = meta.get("distributedInfo")
    rank = information.get("rank") if isinstance(information, dict) else None
    return rank if isinstance(rank, int) else 0


@contextmanager
def unrounded_and_quiet() -> Iterator[None]:
    """Inside, HTA does not round times, nor does it log every file or warn of pandas' next version.

    By default it rounds traces in nanoseconds to microseconds: on a real trace idle time came out 57% too high. Its
    environment variable for that acts only if set before HTA first looks, so this turns the option itself.
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
    """HTA's events, with names for its symbols and times from the first event on; columns as in `Recording`."""
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


def what_is_wrong(file: Path, error: Exception | None = None) -> str:
    """Why HTA found no events in `file`, and what to do about it. `error` is what it raised, if it did."""
    again = "Record it anew, or copy it again from where it came."
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
