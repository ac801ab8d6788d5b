"""The operators of a step, played through the launch-queue model: SIMULATED."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import replace as with_changes
from itertools import groupby
from pathlib import Path

import pandas
import torch

from labkit.errors import LabkitError
from labkit.simulate.cost_model import ROOFLINES, ConvolutionShapes, Kernel, Roofline, kernels
from labkit.simulate.meta_device import Operator
from labtrace.replay.launch_queue import GAP_US, QUEUE_LIMIT, Launch
from labtrace.replay.trace_file import GRAPH_US, Replay, Source

# The lab's host, in microseconds a launch: that of the course paper (data/paper) at batch 1, where it was too slow.
# A step had 4,668 calls that launch a kernel, a copy or a memset. It took 88 ms, and 134.6 ms under the profiler: 18.9
# and 28.8 us for each call, Python included.
# An upper bound: the host waited for part of these 88 ms. Others report 5 to 30 us.
HOST_US = 19.0
RECORDED_HOST_US = 29.0
# Steps that others measured, where the GPU decides, by `kind_of_work`: the devices on which two networks or more were,
# and the range of SIMULATED over measured times that holds eight of ten steps of a network that was left out, if five
# are known. Each network counts once. tests/simulate/test_measured_steps.py computes them from data/measured.
RANGES = pandas.read_csv(Path(__file__).with_name("ranges.csv"), index_col="kind")
OF_MEASURED = (0.7, 1.3)  # of networks of convolutions on an A100 and a V100 without autocast, whatever decides
SLOWEST_HOST = 3  # published steps of small batches take up to 2.7 times as long as simulated


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
    known = re.fullmatch("(float32|16-bit weights), .* convolutions", kind_of_work(operators))
    return {"of_measured": OF_MEASURED} if known and roofline.device in ("A100", "V100") else {}


def kind_of_work(operators: Sequence[Operator]) -> str:
    """For example "float32, grouped convolutions", as in `RANGES`; "" for a program of another kind.

    The arithmetic is "float32", "autocast" (to float16), or "16-bit weights" (float16) where nothing is trained. The
    work is "matrix products", as in attention, if most of it is. Else it is "depthwise convolutions" if it has some,
    then "grouped convolutions" ("channels-last grouped ..." where they are trained so), then "dense convolutions".
    """
    products = [one for one in operators if one.flops]
    types, names = {one.dtype for one in products}, {one.name for one in operators}
    casts, trains = "aten::_to_copy" in names, any("backward" in name for name in names)
    in_16_bits = "autocast" if casts else "" if trains else "16-bit weights"
    arithmetic = "float32" if types == {"float32"} else in_16_bits if types == {"float16"} else ""
    forward = [one for one in products if one.name == "aten::convolution"]
    shapes = [ConvolutionShapes(one.inputs[0], one.inputs[1], one.outputs[0]) for one in forward]
    work = "depthwise" if any(one.is_depthwise for one in shapes) else "dense"
    if work == "dense" and any(one.groups > 1 for one in shapes):
        work = "channels-last grouped" if trains and any(one.channels_last for one in forward) else "grouped"
    if sum(one.flops if "convolution" not in one.name else -one.flops for one in products) > 0:
        return arithmetic and f"{arithmetic}, matrix products"
    return arithmetic and f"{arithmetic}, {work} convolutions"


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
