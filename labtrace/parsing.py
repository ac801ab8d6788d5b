"""Reads the events of a trace file, with errors for files that are no traces."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from labtrace.errors import LabkitError

NULL = msgspec.Raw(b"null")
AGAIN = "Record it again, or copy it again from its source."


class TraceError(LabkitError):
    """A trace cannot be read, or lacks the events that a table needs."""


class NoTraceError(TraceError):
    """A file is sound JSON, but no trace."""


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that tables need, or None for those that it does not have."""

    stream: Any = None
    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    old_external: int | None = msgspec.field(name="external id", default=None)
    wait_on_stream: int | None = None
    wait_on_record: int | None = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NULL)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NULL)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=NULL)


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
    opened = gzip.open if file.name.endswith(".gz") else open
    try:
        with opened(file, "rb") as stream:
            text = stream.read().removeprefix(b"\xef\xbb\xbf").strip()
    except (OSError, EOFError, zlib.error) as cause:
        raise TraceError(
            f"{file}: cannot be read ({cause}): it is damaged, cut off or not compressed, or closed to you. {AGAIN}"
        ) from cause
    if not text:
        raise TraceError(f"{file}: the file is empty. {AGAIN}")
    try:
        meta = _entries(text)
        events = meta.pop("traceEvents", NULL)
        if memoryview(events)[:1] == b"[":
            decode = msgspec.json.Decoder(Event, strict=False).decode
            for event in msgspec.json.decode(events, type=list[msgspec.Raw]):
                on_event(decode(event))
            return {name: msgspec.json.decode(entry) for name, entry in meta.items()}
    except msgspec.ValidationError as cause:
        raise TraceError(f"{file}: an event in it is none that torch.profiler writes ({cause}). {AGAIN}") from cause
    except RecursionError as cause:
        raise TraceError(
            f"{file}: lists or objects in it are nested hundreds deep. No profiler writes that. {AGAIN}"
        ) from cause
    except ValueError as cause:
        raise TraceError(f"{file}: no JSON, or cut off ({cause}). {AGAIN}") from cause
    if text.startswith(b"["):
        raise NoTraceError(
            f'{file}: a bare list of events, which HTA cannot read. Save it as {{"traceEvents": [...]}}.'
        )
    raise NoTraceError(
        f'{file}: JSON, but no trace: there is no list of "traceEvents" in it. Choose a file made by `labkit.record`.'
    )


def _entries(text: bytes) -> dict[str, msgspec.Raw]:
    """The entries of the object that a file is, not decoded yet, or none if the file is something else."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return {}
    except msgspec.DecodeError:  # perhaps for NaN or Infinity, which Python writes: they are times that nobody knows
        whole = json.loads(text, parse_float=Decimal, parse_constant=lambda _: None)
        return _entries(msgspec.json.Encoder(decimal_format="number").encode(whole))
