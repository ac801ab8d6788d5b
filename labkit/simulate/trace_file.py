"""What was played, written as a trace: SIMULATED, and stamped so."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from labkit.files import atomic_write
from labkit.measure.record import check_writable
from labkit.simulate.launch_queue import Launch, Timeline
from labkit.stamp import stamp
from labkit.step import RANGE

CALL_US = 4.5  # of the host's time for a launch, what the CUDA call takes, but at most half: the prototype's assumption
HOST, GPU = 1000, 0  # processes in the trace
CORRELATIONS = 100_000  # the first correlation: HTA 0.5.0 fails on small ones

Event = dict[str, Any]


class Source(NamedTuple):
    """Where a launch comes from.

    `call` numbers the CUDA calls, `operator` PyTorch's operators, each in their order: launches with the same number
    come from the same one, which in a graph's case is one call for many. No operator is -1, no range "", outside of
    all steps -1.
    """

    call: int
    operator: int
    operator_name: str
    range: str
    step: int


@dataclass(frozen=True)
class Replay:
    """What was played, and when what happened.

    `launches`, their `sources` and the `timeline` agree in their order; streams have the numbers that PyTorch's
    profiler gives them. `synchronised` has the positions of the launches after which the host waited for the GPU.
    `device` is what it stands for, and `assumed` what the stamp has to say beyond that. At the begin of every step,
    the host spent `data_us` on data; this is part of its time for the first launch.
    """

    launches: Sequence[Launch]
    sources: Sequence[Source]
    timeline: Timeline
    synchronised: Collection[int]
    device: str
    assumed: Mapping[str, Any]
    data_us: float = 0.0

    def host_free(self, i: int) -> float:
        """When the host went on after a launch, and after the wait that followed it."""
        if i + 1 < len(self.launches):
            return float(self.timeline.host_start[i + 1])
        return self.timeline.wall if i in self.synchronised else float(self.timeline.host_end[i])


def write_trace(played: Replay, path: Path | str) -> Path:
    """Writes a trace that `labkit.Trace`, Holistic Trace Analysis (HTA) and ui.perfetto.dev read.

    Under "labkit" it holds the stamp, with "SIMULATED": true and what it rests on.

    Args:
        played: from `replay` or `replay_recorded`.
        path: a file ending in .json or, compressed, in .json.gz.

    Raises:
        LabkitError: nothing can be written there.
    """
    path = Path(path)
    check_writable(path)
    device = f"SIMULATED {played.device}"
    steps = len({source.step for source in played.sources} - {-1})
    trace = {
        "schemaVersion": 1,
        "labkit": stamp() | {"SIMULATED": True, "device": device, "steps": steps, **played.assumed},
        "deviceProperties": [{"id": GPU, "name": device}],
        "traceEvents": [_process_name(HOST, "SIMULATED host"), _process_name(GPU, device), *events(played)],
    }
    with atomic_write(path) as part, gzip.open(part, "wt") if path.suffix == ".gz" else part.open("w") as file:
        json.dump(trace, file)
    return path


def events(played: Replay) -> Iterator[Event]:
    """The events on the host and on the GPU."""
    begin, end = played.timeline.host_start.copy(), played.timeline.host_end
    for step, i, j in _runs(source.step for source in played.sources):
        if step >= 0:
            yield _event("user_annotation", f"ProfilerStep#{step}", begin[i], played.host_free(j))
            if played.data_us:
                yield _event("user_annotation", RANGE + "data", begin[i], begin[i] + played.data_us)
                begin[i] += played.data_us
    for (_, name), i, j in _runs((source.step, source.range) for source in played.sources):
        if name:
            yield _event("user_annotation", RANGE + name, begin[i], end[j])
    for operator, i, j in _runs(source.operator for source in played.sources):
        if operator >= 0:
            yield _event("cpu_op", played.sources[i].operator_name, begin[i], end[j])
    yield from _calls(played)
    for i in played.synchronised:
        yield _event("cuda_runtime", "cudaDeviceSynchronize", end[i], played.host_free(i))
    yield from _kernels(played)


def _calls(played: Replay) -> Iterator[Event]:
    """The CUDA calls that launch: at the very end of the host's time for a launch."""
    for call, i, j in _runs(source.call for source in played.sources):
        host_us, name = played.launches[i].host_us, played.launches[i].name
        call_us = min(CALL_US, host_us / 2)
        what = "cudaLaunchKernel"
        if j > i:
            what, call_us = "cudaGraphLaunch", host_us - played.data_us
        elif name.startswith("Mem"):
            what = "cudaMemsetAsync" if name.startswith("Memset") else "cudaMemcpyAsync"
        begin = played.timeline.host_start[i] + host_us - call_us
        end = played.timeline.host_end[i]  # later still where a full queue makes the call itself wait
        yield _event("cuda_runtime", what, begin, end, correlation=CORRELATIONS + call)


def _kernels(played: Replay) -> Iterator[Event]:
    """What ran on the GPU, each with the correlation of the call that launched it."""
    categories = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
    begin, end = played.timeline.kernel_start, played.timeline.kernel_end
    for i, (launch, source) in enumerate(zip(played.launches, played.sources, strict=True)):
        category = categories.get(launch.name[:6], "kernel")
        where = {"device": GPU, "stream": launch.stream, "correlation": CORRELATIONS + source.call}
        yield _event(category, launch.name, begin[i], end[i], GPU, launch.stream, **where)


def _event(
    category: str, name: str, begin: float, end: float, process: int = HOST, thread: int = HOST, **args: Any
) -> Event:
    """A complete event of the trace; times in microseconds, written to the nanosecond.

    Those of the host end a nanosecond early: else one might, by rounding, seem to contain the next.
    """
    begin, end = round(float(begin), 3), round(float(end), 3) - (0.001 if process == HOST else 0.0)
    duration = max(0.0, round(end - begin, 3))
    where = {"pid": process, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, **where, "ts": begin, "dur": duration, "args": args}


def _process_name(process: int, name: str) -> Event:
    """What Perfetto writes beside a process."""
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


def _runs(labels: Iterable[Any]) -> Iterator[tuple[Any, int, int]]:
    """Each run of equal labels, with the positions of its first and its last."""
    first = 0
    for label, run in groupby(labels):
        last = first + len(list(run)) - 1
        yield label, first, last
        first = last + 1
