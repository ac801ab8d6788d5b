"""The operators of a step, played through the launch-queue model: SIMULATED."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from dataclasses import replace as with_changes
from itertools import groupby

from labkit.errors import LabkitError
from labkit.simulate.cost_model import ROOFLINES, Kernel, Roofline, kernels
from labkit.simulate.launch_queue import GAP_US, QUEUE_LIMIT, Launch, play
from labkit.simulate.operators import Operator
from labkit.simulate.trace_file import Replay, Source

GRAPH_US = 20.0  # the host's time for launching a whole graph: the prototype's assumption


def replay(
    operators: Sequence[Operator],
    host_us: float,
    roofline: Roofline = ROOFLINES["A100"],
    durations: Mapping[str, float] | None = None,
    graph: bool = False,
    steps: int = 2,
    share: float = 1.0,
    data_us: float = 0.0,
) -> Replay:
    """Plays `steps` steps of these operators, on the streams that they are on.

    The host waits for the GPU where it does in a recording: after each step, as `labkit.record` has it. What comes
    out are ratios between replays of the same constants, not times; see `labkit.simulate.cost_model`.

    Args:
        operators: of one step, from `record_operators`.
        host_us: microseconds of host time for every launch: an assumption to vary, not a claim.
        roofline: of the device it stands for.
        durations: measured ones, in microseconds by `Operator.signature`, to be preferred to the roofline's.
        graph: whether one call launches the whole step, as a CUDA graph.
        steps: how many.
        share: how much of the GPU, from 0 to 1, each kernel fills when it runs alone. An assumption that decides what
            two streams gain: with 1.0 two kernels at once take as long as one after the other, with 0.5 or less both
            run at full speed. Try both: the truth is between them, and differs from kernel to kernel.
        data_us: microseconds of host time for a batch, before each step.

    Raises:
        LabkitError: `share` is no share, or the device does not compute in the operators' type.
    """
    if not 0 <= share <= 1:
        raise LabkitError(f"share={share}: give the part of the GPU that a kernel fills, from 0 to 1.")
    found = kernels(operators, roofline, durations)
    step = _launches(operators, found, host_us, share)
    if graph:
        step = [with_changes(launch, host_us=0.0 if i else GRAPH_US) for i, launch in enumerate(step)]
    step[0] = with_changes(step[0], host_us=step[0].host_us + data_us)
    launches, sources = [], []
    for number in range(steps):
        first = len(launches)
        for i, (launch, kernel) in enumerate(zip(step, found, strict=True)):
            launches.append(with_changes(launch, after=tuple(first + other for other in launch.after)))
            operator = operators[kernel.operator]
            if graph:  # PyTorch runs no operator and enters no range
                sources.append(Source(number, -1, "", "", number))
            else:
                place = number * len(operators) + kernel.operator
                sources.append(Source(first + i, place, operator.name, operator.range, number))
    after_each_step = [len(found) * number - 1 for number in range(1, steps + 1)]
    limit = len(found) + 1 if graph else QUEUE_LIMIT  # a graph is one entry of the queue
    constants = {
        "host_us": None if graph else host_us,
        "graph_us": GRAPH_US if graph else None,
        "gap_us": GAP_US,
        "queue_limit": None if graph else QUEUE_LIMIT,
        "share_of_gpu_a_kernel_fills": share,
        "data_us": data_us,
        "roofline": asdict(roofline),
        "share_of_kernels_with_measured_duration": sum(
            operators[kernel.operator].signature in (durations or {}) for kernel in found
        )
        / len(found),
    }
    timeline = play(launches, after_each_step, limit)
    return Replay(launches, sources, timeline, after_each_step, roofline.device, {"constants": constants}, data_us)


def _launches(operators: Sequence[Operator], found: Sequence[Kernel], host_us: float, share: float) -> list[Launch]:
    """A launch for each kernel of a step; it waits for the kernels of the operators that its own one waits for.

    An operator without kernels hands its waits on to the next kernel of its stream.
    """
    kernels_of = {place: list(group) for place, group in groupby(found, key=lambda kernel: kernel.operator)}
    launches: list[Launch] = []
    newest: dict[int, int] = {}  # of each stream, its newest launch
    reached: list[int | None] = []  # of each operator, the newest launch of its stream by then
    waits: dict[int, set[int]] = defaultdict(set)  # of each stream, what its next kernel waits for
    for place, operator in enumerate(operators):
        waits[operator.stream].update(reached[other] for other in operator.after if reached[other] is not None)
        for kernel in kernels_of.get(place, ()):
            after = tuple(sorted(waits.pop(operator.stream, ())))
            newest[operator.stream] = len(launches)
            launches.append(Launch(kernel.name, host_us, kernel.us, profiled_stream(operator.stream), after, share))
        reached.append(newest.get(operator.stream))
    return launches


def profiled_stream(number: int) -> int:
    """What PyTorch's profiler calls a stream: 7 the main one, then 20, 24, ..."""
    return 16 + 4 * number if number else 7
