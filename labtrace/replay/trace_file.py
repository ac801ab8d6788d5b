"""A list of launches to play, and the trace that is written of it, with a stamp that says SIMULATED."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labtrace.errors import LabError
from labtrace.files import atomic_write, check_writable
from labtrace.ranges import RANGE
from labtrace.replay.launch_queue import GAP_US, QUEUE_LIMIT, Launch, Timeline, play
from labtrace.stamp import stamp

GRAPH_US = 20.0  # the host's time for launching a whole graph: an assumption
CALL_US = 4.5  # the part of the host's time for a launch that the CUDA call takes, at most half of it: an assumption
HOST, GPU = 1000, 0  # processes in the trace
EXTERNAL, FIRST_EXTERNAL = "External id", 1  # PyTorch's number of an operator; 0 for none
CORRELATIONS = 100_000  # the first correlation: HTA 0.5.0 fails on small numbers

Event = dict[str, Any]


class Source(NamedTuple):
    """Where a launch comes from.

    `call` numbers the CUDA calls and `operator` PyTorch's operators, each in their order. Launches with the same
    number come from the same call or operator. One call launches all kernels of a graph. Operator -1 is no operator,
    range "" is no range, and step -1 is outside of all steps.
    """

    call: int
    operator: int
    operator_name: str
    range: str
    step: int


@dataclass(frozen=True, repr=False)
class Replay:
    """Launches to play, with everything that the model and the trace need: SIMULATED.

    Attributes:
        launches: in their order. Streams have the numbers that PyTorch's profiler gives them.
        sources: where each launch comes from.
        synchronised: positions of the launches after which the host waits for the GPU, or for the kernels at the
            positions to which they are mapped, as for `labtrace.replay.play`.
        device: the name of the simulated device.
        assumed: more entries for the stamp of the trace.
        gap_us, queue_limit: as for `labtrace.replay.play`.
    """

    launches: Sequence[Launch]
    sources: Sequence[Source]
    synchronised: Collection[int] | Mapping[int, Collection[int]]
    device: str
    assumed: Mapping[str, Any]
    gap_us: float = GAP_US
    queue_limit: int = QUEUE_LIMIT

    def __repr__(self) -> str:
        times = f"wall {self.timeline.wall:,.0f} us, GPU busy {self.timeline.busy:,.0f} us"
        changed = f"\nchanged: {self.assumed['changed']}" if "changed" in self.assumed else ""
        return f"Replay of {len(self.launches):,} launches on {self.device}, SIMULATED: {times}{changed}"

    @cached_property
    def timeline(self) -> Timeline:
        """The launches, played."""
        return play(self.launches, self.synchronised, self.queue_limit, self.gap_us)

    def as_graphs(self) -> Replay:
        """The same kernels, with every step launched by one call, after its data are loaded.

        PyTorch then runs no operator and enters no range.

        Raises:
            LabError: no launch belongs to a step.
        """
        launches, sources = list(self.launches), list(self.sources)
        data_us: dict[int, float] = defaultdict(float)  # of each step
        for launch, source in zip(launches, sources, strict=True):
            data_us[source.step] += launch.data_us
        first: dict[int, int] = {}  # of each step, its first launch
        last: dict[int, int] = {}
        for i, (_, _, _, _, step) in enumerate(self.sources):
            if step < 0:
                continue
            loading = 0.0 if step in first else data_us[step]
            call_us = 0.0 if step in first else GRAPH_US
            launches[i] = replace(launches[i], host_us=call_us + loading, data_us=loading)
            sources[i] = Source(sources[first.setdefault(step, i)].call, -1, "", "", step)
            last[step] = i
        if not first:
            raise LabError("graph: no steps are marked in this trace: call the profiler's step() after each.")
        waits = {i for i in self.synchronised if sources[i].step < 0 or i == last[sources[i].step]}
        # A graph is one entry of the queue, so the limit does not apply.
        return replace(self, launches=launches, sources=sources, synchronised=waits, queue_limit=len(launches) + 1)

    def host_free(self, i: int) -> float:
        """When the host went on after a launch and the wait that followed it, in microseconds."""
        if i + 1 < len(self.launches):
            return float(self.timeline.host_start[i + 1])
        return self.timeline.wall if i in self.synchronised else float(self.timeline.host_end[i])


def write_trace(played: Replay, path: Path | str, rank: int = 0) -> Path:
    """Writes a trace that `labtrace.Trace`, Holistic Trace Analysis (HTA) and ui.perfetto.dev read.

    Under "labkit" it holds the stamp, with "SIMULATED": true and all assumptions.

    Args:
        played: from `replay` or `what_if`.
        path: a file ending in .json or, compressed, in .json.gz.
        rank: of several, each of which has a file of its own.

    Raises:
        LabError: the file cannot be written.
    """
    path = Path(path)
    check_writable(path)
    device = f"SIMULATED {played.device}"
    steps = len({source.step for source in played.sources} - {-1})
    trace = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": rank},
        "labkit": stamp() | {"SIMULATED": True, "device": device, "steps": steps, **played.assumed},
        "deviceProperties": [{"id": GPU, "name": device}],
        "traceEvents": [_process_name(HOST, "SIMULATED host"), _process_name(GPU, device), *events(played)],
    }
    with atomic_write(path) as part, gzip.open(part, "wt") if path.suffix == ".gz" else part.open("w") as file:
        file.write(json.dumps(trace))  # several times faster than json.dump, which writes each number by itself
    return path


def events(played: Replay) -> Iterator[Event]:
    """The events on the host and on the GPU."""
    begin, end = played.timeline.host_start.copy(), played.timeline.host_end
    loading = np.array([launch.data_us for launch in played.launches])
    for step, i, j in _runs(source.step for source in played.sources):
        if step >= 0:
            yield _event("user_annotation", f"ProfilerStep#{step}", begin[i], played.host_free(j))
    for i in np.flatnonzero(loading).tolist():
        yield _event("user_annotation", RANGE + "data", begin[i], begin[i] + loading[i])
    begin += loading
    for (_, name), i, j in _runs((source.step, source.range) for source in played.sources):
        if name:
            yield _event("user_annotation", RANGE + name, begin[i], end[j])
    for operator, i, j in _runs(source.operator for source in played.sources):
        if operator >= 0:
            name = played.sources[i].operator_name
            yield _event("cpu_op", name, begin[i], end[j], **{EXTERNAL: FIRST_EXTERNAL + operator})
    yield from _calls(played)
    for i in sorted(played.synchronised):
        yield _event("cuda_runtime", "cudaDeviceSynchronize", end[i], played.host_free(i))
    yield from _kernels(played)


def _calls(played: Replay) -> Iterator[Event]:
    """The CUDA calls that launch, at the very end of the host's time for a launch, and arrows from them."""
    for call, i, j in _runs(source.call for source in played.sources):
        host_us, name = played.launches[i].host_us, played.launches[i].name
        call_us = min(CALL_US, host_us / 2)
        call_name = "cudaLaunchKernel"
        if j > i:
            call_name, call_us = "cudaGraphLaunch", host_us - played.launches[i].data_us
        elif name.startswith("Mem"):
            call_name = "cudaMemsetAsync" if name.startswith("Memset") else "cudaMemcpyAsync"
        begin = played.timeline.host_start[i] + host_us - call_us
        end = played.timeline.host_end[i]  # later if a full queue makes the call itself wait
        yield _event("cuda_runtime", call_name, begin, end, **_links(played.sources[i]))
        yield {"ph": "s", **_arrow(CORRELATIONS + call, begin, HOST, HOST)}


def _kernels(played: Replay) -> Iterator[Event]:
    """The kernels, each with the correlation of the call that launched it, and an arrow from that call."""
    categories = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
    begin, end = played.timeline.kernel_start, played.timeline.kernel_end
    for i, (launch, source) in enumerate(zip(played.launches, played.sources, strict=True)):
        category = categories.get(launch.name[:6], "kernel")
        where = {"device": GPU, "stream": launch.stream, **_links(source)}
        yield _event(category, launch.name, begin[i], end[i], GPU, launch.stream, **where)
        yield {"ph": "f", "bp": "e", **_arrow(CORRELATIONS + source.call, begin[i], GPU, launch.stream)}


def _links(source: Source) -> Event:
    """The numbers by which a reader finds the call and the operator that a call or kernel comes from."""
    by_operator = {EXTERNAL: FIRST_EXTERNAL + source.operator} if source.operator >= 0 else {}
    return {"correlation": CORRELATIONS + source.call} | by_operator


def _arrow(number: int, time: float, process: int, thread: int) -> Event:
    """One end of an arrow from a call to a kernel, as Perfetto draws it and TraceLens follows it."""
    where = {"pid": process, "tid": thread, "ts": round(float(time), 3)}
    return {"cat": "ac2g", "name": "ac2g", "id": number, **where}


def _event(
    category: str, name: str, begin: float, end: float, process: int = HOST, thread: int = HOST, **args: Any
) -> Event:
    """A complete event of the trace, with times in microseconds, written to the nanosecond.

    Events of the host end a nanosecond early. Otherwise rounding could make an event contain the next one.
    """
    begin, end = round(float(begin), 3), round(float(end), 3) - (0.001 if process == HOST else 0.0)
    duration = max(0.0, round(end - begin, 3))
    where = {"pid": process, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, **where, "ts": begin, "dur": duration, "args": args}


def _process_name(process: int, name: str) -> Event:
    """The name that Perfetto shows for a process."""
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


def _runs(labels: Iterable[Any]) -> Iterator[tuple[Any, int, int]]:
    """Each run of equal labels, with the positions of its first and its last label."""
    first = 0
    for label, run in groupby(labels):
        last = first + len(list(run)) - 1
        yield label, first, last
        first = last + 1
