"""Operators played through the launch-queue model, and written as a trace: SIMULATED, and stamped so."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from labkit.measure import RANGE
from labkit.measure.recording import check_writable
from labkit.replay.costs import ROOFLINES, Kernel, Roofline, kernels
from labkit.replay.queue import GAP_US, QUEUE_LIMIT, Launch, Timeline, play
from labkit.replay.record import Operator
from labkit.stamp import stamp

GRAPH_US = 20.0  # the host's time for launching a whole graph: the prototype's assumption
CALL_US = 4.5  # of the host's time for a launch, what the CUDA call takes, but at most half: likewise
HOST, GPU, STREAM = 1000, 0, 7  # processes in the trace, and what PyTorch's profiler calls the default stream
CORRELATIONS = 100_000  # the first correlation: HTA 0.5.0 fails on small ones

Event = dict[str, Any]


@dataclass(frozen=True)
class Replay:
    """What was played, and when what happened.

    `kernels` are those of one step; `timeline` has them `steps` times, one step after the other, and after each the
    host waited for the GPU. `measured` is the share of the kernels whose durations were measured.
    """

    operators: Sequence[Operator]
    kernels: Sequence[Kernel]
    timeline: Timeline
    steps: int
    host_us: float
    graph: bool
    roofline: Roofline
    measured: float


def replay(
    operators: Sequence[Operator],
    host_us: float,
    roofline: Roofline = ROOFLINES["A100"],
    durations: Mapping[str, float] | None = None,
    graph: bool = False,
    steps: int = 2,
) -> Replay:
    """Plays `steps` steps of these operators on one stream.

    The host waits for the GPU where it does in a recording: after each step, as `labkit.record` has it.

    Args:
        operators: of one step, from `record_operators`.
        host_us: microseconds of host time for every launch: an assumption to vary, not a claim.
        roofline: of the device it stands for.
        durations: measured ones, in microseconds by `Operator.signature`, to be preferred to the roofline's.
        graph: whether one call launches the whole step, as a CUDA graph.
        steps: how many.
    """
    found = kernels(operators, roofline, durations)
    launches = [Launch(kernel.name, 0.0 if graph else host_us, kernel.us) for kernel in found]
    if graph:
        launches[0] = Launch(found[0].name, GRAPH_US, found[0].us)
    after_each_step = [len(found) * step - 1 for step in range(1, steps + 1)]
    limit = len(found) + 1 if graph else QUEUE_LIMIT  # a graph is one entry of the queue
    timeline = play(launches * steps, after_each_step, queue_limit=limit)
    measured = sum(operators[kernel.operator].signature in (durations or {}) for kernel in found) / len(found)
    return Replay(operators, found, timeline, steps, host_us, graph, roofline, measured)


def write_trace(played: Replay, path: Path | str) -> Path:
    """Writes a trace that `labkit.Trace`, Holistic Trace Analysis (HTA) and ui.perfetto.dev read.

    Under "labkit" it holds the stamp, with "SIMULATED": true and the constants it rests on.

    Args:
        played: from `replay`.
        path: a file ending in .json or, compressed, in .json.gz.

    Raises:
        LabkitError: nothing can be written there.
    """
    path = Path(path)
    check_writable(path)
    device = f"SIMULATED {played.roofline.device}"
    simulated = {"SIMULATED": True, "device": device, "steps": played.steps, "constants": constants(played)}
    trace = {
        "schemaVersion": 1,
        "labkit": stamp() | simulated,
        "deviceProperties": [{"id": GPU, "name": device}],
        "traceEvents": [_process_name(HOST, "SIMULATED host"), _process_name(GPU, device), *events(played)],
    }
    beside = path.with_name(f"part-{path.name}")
    opened = gzip.open(beside, "wt") if path.name.endswith(".gz") else beside.open("w")
    with opened as file:
        json.dump(trace, file)
    os.replace(beside, path)
    return path


def constants(played: Replay) -> dict[str, Any]:
    """All that was assumed: with others, other times."""
    return {
        "host_us": None if played.graph else played.host_us,
        "graph_us": GRAPH_US if played.graph else None,
        "gap_us": GAP_US,
        "queue_limit": None if played.graph else QUEUE_LIMIT,
        "roofline": asdict(played.roofline),
        "share_of_kernels_with_measured_duration": played.measured,
    }


def events(played: Replay) -> Iterator[Event]:
    """The events of all steps, on the host and on the GPU."""
    for step in range(played.steps):
        first = step * len(played.kernels)
        yield from _waits(played, first)
        yield from _launching_graph(played, first) if played.graph else _launching(played, first)
        yield from _kernels(played, first)
        last = first + len(played.kernels) - 1
        begin, end = played.timeline.host_start[first], _host_free(played, last)
        yield _event("user_annotation", f"ProfilerStep#{step}", begin, end)


def _launching(played: Replay, first: int) -> Iterator[Event]:
    """Of a step whose first launch is at `first`: labkit's ranges, operators, and a call for each kernel."""
    begin, end = played.timeline.host_start[first:], played.timeline.host_end[first:]
    ranges = [played.operators[kernel.operator].range for kernel in played.kernels]
    for name, i, j in _runs(ranges):
        if name:
            yield _event("user_annotation", RANGE + name, begin[i], end[j])
    for operator, i, j in _runs(kernel.operator for kernel in played.kernels):
        yield _event("cpu_op", played.operators[operator].name, begin[i], end[j])
    call_us = min(CALL_US, played.host_us / 2)
    for i, kernel in enumerate(played.kernels):
        call = "cudaMemcpyAsync" if kernel.name.startswith("Memcpy") else "cudaLaunchKernel"
        call_begin = begin[i] + played.host_us - call_us  # until the end: a full queue makes the call itself wait
        yield _event("cuda_runtime", call, call_begin, end[i], correlation=CORRELATIONS + first + i)


def _launching_graph(played: Replay, first: int) -> Iterator[Event]:
    """One call for the whole step. PyTorch runs no operator and enters no range."""
    begin, end = played.timeline.host_start[first], played.timeline.host_end[first]
    yield _event("cuda_runtime", "cudaGraphLaunch", begin, end, correlation=CORRELATIONS + first)


def _waits(played: Replay, first: int) -> Iterator[Event]:
    """The host's wait for the GPU after a step."""
    last = first + len(played.kernels) - 1
    yield _event("cuda_runtime", "cudaDeviceSynchronize", played.timeline.host_end[last], _host_free(played, last))


def _host_free(played: Replay, i: int) -> float:
    """When the host went on after a launch after which it had waited."""
    following = played.timeline.host_start[i + 1 : i + 2]
    return float(following[0]) if len(following) else played.timeline.wall


def _kernels(played: Replay, first: int) -> Iterator[Event]:
    """What ran on the GPU; each kernel of a graph has the correlation of the graph's launch."""
    begin, end = played.timeline.kernel_start[first:], played.timeline.kernel_end[first:]
    for i, kernel in enumerate(played.kernels):
        category = "gpu_memcpy" if kernel.name.startswith("Memcpy") else "kernel"
        correlation = CORRELATIONS + first + (0 if played.graph else i)
        stream = STREAM + int(played.timeline.stream[first + i])
        where = {"device": GPU, "stream": stream, "correlation": correlation}
        yield _event(category, kernel.name, begin[i], end[i], GPU, stream, **where)


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
