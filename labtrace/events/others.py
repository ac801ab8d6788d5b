"""Files that other tools write: what they are, and what reads them."""

from __future__ import annotations

import re
from pathlib import Path

from labtrace.errors import TraceError

OTHERS = {  # by a pattern of the file's name, a line break and the file's beginning
    rb'\A.*\.pb\n|"hlo_(?:op|module)"|/host:CPU|/device:[GT]PU:': "a profile of XLA (JAX, TensorFlow): xprof reads it",
    rb'\A.*\.(nsys-rep|qdrep|sqlite|ncu-rep)\n|"(TraceProcess|Cuda)Event"': "a report of Nsight: nsys or ncu reads it",
    rb'\A.*\.(db|pftrace)\n|"rocprofiler-sdk-tool"|"BeginNs"': "a profile of AMD's rocprof: rocpd reads it",
}


class NoTraceError(TraceError):
    """A file is sound, but no trace."""


def check_own(file: Path, beginning: bytes = b"") -> None:
    """Raises `NoTraceError` if the name or the beginning of a file shows that another tool wrote it."""
    for pattern, what in OTHERS.items():
        if re.search(pattern, file.name.encode(errors="replace") + b"\n" + beginning):
            raise NoTraceError(f"{file}: no trace of torch.profiler, but {what}. `labtrace watch` records a trace.")
