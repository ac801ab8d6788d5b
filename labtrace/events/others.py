"""Files that other tools write: what they are, and what reads them."""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from pathlib import Path

from labtrace.errors import TraceError

GZIP = b"\x1f\x8b"  # begins a compressed file
BEGINNING = 1 << 20  # bytes, in which a file shows what it is
XLA = "a profile of XLA (JAX, TensorFlow), which xprof reads"
NSIGHT = "a report of Nsight Systems, which nsys reads"
ROCPROF = "a profile by AMD's rocprof, which rocpd or ui.perfetto.dev reads"
EXECUTION = "an execution trace (Chakra), which has no times of kernels, and et_replay reads"
SNAPSHOT = "a snapshot of the GPU's memory, which docs.pytorch.org/memory_viz shows"
# By a part of the beginning, then by the end of the name. Databases and pickles may be something else.
BY_TEXT = {
    rb'"hlo_(?:op|module)"|/host:CPU|/device:[GT]PU:': XLA,
    rb'"(?:TraceProcess|Cuda|Nvtx)Event"|CUPTI_ACTIVITY_KIND': NSIGHT,
    rb'"rocprofiler-sdk-tool"|"BeginNs"|rocpd_': ROCPROF,
    rb'^\s*\{[^{]*"schema"\s*:[^{]*"nodes"\s*:': EXECUTION,
    rb"^\s*\[\s*\[": "a timeline of the memory (export_memory_timeline), which has no kernels",
    rb"^\x80[\s\S]{0,40}segments": SNAPSHOT,
}
BY_NAME = {
    r"\.pb$": XLA,
    r"\.(nsys-rep|qdrep|sqlite)$": NSIGHT,
    r"\.ncu-rep$": "a report of Nsight Compute, which ncu reads",
    r"\.(db|pftrace)$": ROCPROF,
    r"\.et$": EXECUTION,
    r"\.(pickle|pkl)$": SNAPSHOT,
}


class NoTraceError(TraceError):
    """A file is sound, but no trace."""


def check_own(file: Path) -> None:
    """Raises `NoTraceError` if the beginning or the name of a file shows that another tool wrote it."""
    text = b""
    with suppress(OSError, zlib.error), open(file, "rb") as content:
        text = content.read(BEGINNING)
        text = zlib.decompressobj(wbits=31).decompress(text, BEGINNING) if text.startswith(GZIP) else text
    found = [what for pattern, what in BY_TEXT.items() if re.search(pattern, text)]
    found += [what for pattern, what in BY_NAME.items() if re.search(pattern, file.name)]
    if found:
        raise NoTraceError(
            f"{file}: no trace of torch.profiler, but {found[0]}. Choose a trace, or record one with torch.profiler or "
            "`labtrace watch`."
        )
