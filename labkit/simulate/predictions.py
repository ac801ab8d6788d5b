"""How long any program would take on a GPU that you do not have, and what bounds it: SIMULATED."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pandas
import torch
from torch import Tensor, nn

from labkit.errors import LabkitError, explained
from labkit.simulate.as_on_gpu import as_on_gpu
from labkit.simulate.cost_model import ROOFLINES, Roofline, parts_of
from labkit.simulate.meta_device import LiveBytes, Operator, Recorder
from labkit.simulate.operator_replay import HOST_US, RANGES, SLOWEST_HOST, kind_of_work, replay
from labkit.stamp import stamp
from labtrace.errors import check_known

ON_META = (
    "If it runs on a GPU: all of its tensors have to be on the meta device (make them under `with "
    "torch.device('meta'):`), and it may not read a tensor's values, as .item(), print and `if loss > 1:` do, since "
    "this device knows shapes only."
)


def program_operators(run: Callable[[], object]) -> list[Operator]:
    """The operators of one call of `run`, in their order: any program whose tensors are on the meta device.

    Call it once before, if its first step differs from the later ones: an optimiser makes its state in it.

    Raises:
        LabkitError: none of its tensors is on the meta device.
    """
    with as_on_gpu() as schedule, Recorder(schedule) as recorder:
        run()
    if not recorder.operators:
        raise LabkitError("The step computed nothing on the meta device: make it under `with torch.device('meta'):`.")
    return recorder.operators


def predict(
    step: Callable[[], object] | nn.Module,
    *inputs: Tensor,
    device: str | None = None,
    graph: bool | None = None,
    host_us: float = HOST_US,
) -> pandas.DataFrame:
    """The time of a step on GPUs, launch by launch and as a CUDA graph, what bounds it, and its memory: SIMULATED.

    Nothing is computed: the step runs twice on PyTorch's meta device, which knows shapes only.

    Args:
        step: a function without arguments that computes on the meta device, for example a training step. Or a module
            and its inputs, for its forward pass without gradients; they may be on any device.
        device: one of `ROOFLINES`. By default, each that computes in the step's types: a V100 has no bfloat16.
        graph: whether the whole step is one CUDA graph. By default, both ways.
        host_us: microseconds of host time for every launch. Hosts differ: vary it from 5 to 30.

    Returns:
        A row for each device and way to launch.

        | column | meaning |
        |---|---|
        | device, launch | the GPU; "eager" or "graph" |
        | SIMULATED_ms | the time of a step |
        | low_ms, high_ms | between them were eight of ten steps of networks left out; NaN where too few are known |
        | bound_by | "host" where a graph would save over a tenth, else "arithmetic" or "memory", by the kernels' time |
        | launches | calls of the host. A graph is one |
        | arithmetic_ms, memory_ms | the kernels that each of them bounds |
        | memory_GB | the peak of all tensors: COUNTED. A GPU needs more, see `labkit.simulate.step_memory` |

        `low_ms` and `high_ms` are known of the kinds of work and devices in `RANGES` of `operator_replay`, and only if
        a host `SLOWEST_HOST` times as slow would add less than a tenth.
        ``attrs["stamp"]`` has all assumptions.

    Raises:
        LabkitError: a device is unknown or lacks the step's type, or the step cannot run on the meta device.
    """
    if device is not None:
        check_known("device", device, ROOFLINES)
    ways = (False, True) if graph is None else (graph,)
    if isinstance(step, nn.Module):
        on_meta, moved = copy.deepcopy(step).to("meta"), [one.to("meta") for one in inputs]
        step = torch.no_grad()(lambda: on_meta(*moved))
    with explained("The step failed on the meta device", ON_META), LiveBytes() as live:
        with as_on_gpu():
            step()  # an optimiser makes its state
        operators = program_operators(step)
    types = {operator.dtype for operator in operators if operator.flops}
    able = [name for name, roofline in ROOFLINES.items() if types <= roofline.flops_per_s.keys()]
    devices = (able or [*ROOFLINES]) if device is None else [device]
    rows = [
        {**_row(operators, ROOFLINES[name], as_graph, host_us), "memory_GB": live.peak / 1e9}
        for name in devices
        for as_graph in ways
    ]
    table = pandas.DataFrame(rows).round(2)
    assumed = {"host_us": host_us, "rooflines": {name: asdict(ROOFLINES[name]) for name in devices}}
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": f"SIMULATED {', '.join(devices)}", **assumed}
    return table


def _row(operators: Sequence[Operator], roofline: Roofline, graph: bool, host_us: float) -> dict[str, object]:
    plays = ((host_us, graph), (SLOWEST_HOST * host_us, graph), (host_us, True))
    played, slower, as_graph = (replay(operators, us, roofline, graph=way, steps=1) for us, way in plays)
    milliseconds = played.timeline.wall / 1e3
    us = {"arithmetic": 0.0, "memory": 0.0}
    for operator in operators:
        for part in parts_of(operator, roofline):
            computing = roofline.microseconds(part.flops, 0.0, part.arithmetic)
            moving = roofline.microseconds(0.0, part.bytes_moved)
            us["arithmetic" if computing > moving else "memory"] += max(computing, moving)
    waits, would_wait = (one.timeline.wall > 1.1 * as_graph.timeline.wall for one in (played, slower))
    kind, low, high = kind_of_work(operators), math.nan, math.nan
    if kind in RANGES.index and roofline.device in RANGES["devices"][kind].split("; ") and not would_wait:
        low, high = RANGES.loc[kind, ["low", "high"]]
    return {
        "device": roofline.device,
        "launch": "graph" if graph else "eager",
        "SIMULATED_ms": milliseconds,
        "low_ms": milliseconds / high,
        "high_ms": milliseconds / low,
        "bound_by": "host" if waits else max(us, key=lambda bound: us[bound]),
        "launches": 1 if graph else len(played.launches),
        **{f"{bound}_ms": total / 1e3 for bound, total in us.items()},
    }
