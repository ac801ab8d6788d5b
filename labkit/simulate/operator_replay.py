"""The operators of a step, played through the launch-queue model: SIMULATED."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import replace as with_changes
from itertools import groupby

import torch

from labkit.errors import LabkitError
from labkit.simulate.cost_model import ROOFLINES, Kernel, Roofline, kernels
from labkit.simulate.meta_device import Operator
from labtrace.replay.launch_queue import GAP_US, QUEUE_LIMIT, Launch
from labtrace.replay.trace_file import GRAPH_US, Replay, Source

# The lab's host, in microseconds a launch: that of the course paper (data/paper) at batch 1, where it was too slow.
# A step had 4,668 calls that launch a kernel, a copy or a memset. It took 88 ms, and 134.6 ms under the profiler: 18.9
# and 28.8 us for each call, Python included.
# An upper bound: the host waited for part of these 88 ms. Others report 5 to 30 us.
HOST_US = 19.0
RECORDED_HOST_US = 29.0
# Of networks of convolutions on these devices others measured steps, in these kinds of arithmetic. SIMULATED over
# measured time of eight of ten is in this range: where the GPU decides, rounded to twentieths away from 1, and, for an
# A100 and a V100 with any host, `OF_MEASURED`. tests/simulate/test_measured_steps.py compares them with data/measured.
RANGES = {"float32": {"A100": (0.9, 1.1), "V100": (0.9, 1.1), "T4": (0.75, 0.95)}}
RANGES["16-bit weights"] = {"A100": (0.8, 1.25)}
OF_MEASURED = (0.8, 1.2)


def replay(
    operators: Sequence[Operator],
    host_us: float = HOST_US,
    roofline: Roofline = ROOFLINES["A100"],
    graph: bool = False,
    steps: int = 2,
    share: float = 1.0,
    data_us: float = 0.0,
) -> Replay:
    """Plays `steps` steps of these operators, each on its own stream: SIMULATED.

    As in a recording of `labkit.record`, the host waits for the GPU after each step. Do not read the result as times,
    but as ratios between replays with the same constants: see `labkit.simulate.cost_model`.

    Args:
        operators: of one step, from `step_operators`.
        host_us: microseconds of host time for every launch. Hosts differ: vary it.
        roofline: of the simulated device.
        graph: whether one call launches the whole step, as a CUDA graph.
        steps: the number of steps.
        share: the part of the GPU, from 0 to 1, that each kernel fills when it runs alone. This assumption decides
            how much two streams gain: with 1.0 two kernels that overlap take as long as one after the other, with 0.5
            or less both run at full speed. Try both: the truth lies between them and differs from kernel to kernel.
        data_us: microseconds of host time for loading a batch, before each step.

    Raises:
        LabkitError: `share` is not in [0, 1], or the device does not compute in the operators' type.
    """
    if not 0 <= share <= 1:
        raise LabkitError(f"share={share}: give the part of the GPU that a kernel fills, from 0 to 1.")
    found = kernels(operators, roofline)
    step = _launches(operators, found, host_us, share)
    step[0] = with_changes(step[0], host_us=host_us + data_us, data_us=data_us)
    launches: list[Launch] = []
    sources: list[Source] = []
    for number in range(steps):
        first = len(launches)
        launches += [with_changes(launch, after=tuple(first + other for other in launch.after)) for launch in step]
        for i, (_, _, place) in enumerate(found):
            operator = operators[place]
            sources.append(Source(first + i, number * len(operators) + place, operator.name, operator.range, number))
    constants = {
        "host_us": None if graph else host_us,
        "graph_us": GRAPH_US if graph else None,
        "gap_us": GAP_US,
        "queue_limit": None if graph else QUEUE_LIMIT,
        "share_of_gpu_a_kernel_fills": share,
        "data_us": data_us,
        "roofline": asdict(roofline),
    }
    after_each_step = [len(found) * number - 1 for number in range(1, steps + 1)]
    assumed = {"torch": torch.__version__, "constants": constants, **of_measured(operators, roofline)}
    played = Replay(launches, sources, after_each_step, roofline.device, assumed)
    return played.as_graphs() if graph else played


def of_measured(operators: Sequence[Operator], roofline: Roofline) -> dict[str, tuple[float, float]]:
    """For the stamp: how far such times were from measured ones, or nothing if none is known of this kind."""
    known = roofline.device != "T4" and roofline.device in RANGES.get(arithmetic(operators), {})
    return {"of_measured": OF_MEASURED} if known else {}


def arithmetic(operators: Sequence[Operator]) -> str:
    """ "float32" or "16-bit weights" for a network of convolutions, "" for a program of another kind.

    Nobody's training in 16 bits, autocast or attention was close enough to the model to tell a range.
    """
    products = [operator for operator in operators if operator.flops]
    types = {operator.dtype for operator in products}
    others = sum(one.flops if "convolution" not in one.name else -one.flops for one in products)
    if types == {"float32"} and others < 0:
        return "float32"
    is_cast_or_trained = any("backward" in one.name or one.name == "aten::_to_copy" for one in operators)
    return "16-bit weights" if types <= {"float16", "bfloat16"} and others < 0 and not is_cast_or_trained else ""


def _launches(operators: Sequence[Operator], found: Sequence[Kernel], host_us: float, share: float) -> list[Launch]:
    """A launch for each kernel of a step. It waits for the kernels of those operators that its operator waits for.

    An operator without kernels passes its waits on to the next kernel of its stream.
    """
    kernels_of = {place: list(group) for place, group in groupby(found, key=lambda kernel: kernel.operator)}
    launches: list[Launch] = []
    newest: dict[int, int] = {}  # of each stream, its newest launch
    reached: list[int | None] = []  # of each operator, the newest launch of its stream by then
    waits: dict[int, set[int]] = defaultdict(set)  # of each stream, the launches its next kernel waits for
    for place, operator in enumerate(operators):
        waits[operator.stream].update(one for other in operator.after if (one := reached[other]) is not None)
        for kernel in kernels_of.get(place, ()):
            after = tuple(sorted(waits.pop(operator.stream, ())))
            newest[operator.stream] = len(launches)
            launches.append(Launch(kernel.name, host_us, kernel.us, profiled_stream(operator.stream), after, share))
        reached.append(newest.get(operator.stream))
    return launches


def profiled_stream(number: int) -> int:
    """The number that PyTorch's profiler gives a stream: 7 to the main stream, then 20, 24, ..."""
    return 16 + 4 * number if number else 7
