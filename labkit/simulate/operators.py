"""The operators of one training step, without computing any: the real step, run on PyTorch's meta device.

The meta device knows shapes only, so a full-size step takes about a second on any machine. PyTorch picks the same
operators there as on a GPU, forward, backward and optimiser; `labkit.simulate.cost_model` says which kernels they
launch.
Where a speed-up needs what only a GPU has, `labkit.simulate.cuda_stubs` takes its place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.errors import LabkitError
from labkit.measure.durations import Call, Shape, call_on, signature
from labkit.measure.record import Batch
from labkit.measure.roofline import flop_counter
from labkit.simulate.cuda_stubs import OnCUDA, standing_in
from labkit.simulate.schedule import Schedule
from labkit.step import RANGE, Step
from labkit.variants.registry import make_step

FLOPS = flop_counter().flop_registry
GPU_ONLY = {"graph", "compile", "channels_last"}  # fail on the meta device
# Do not read their first argument: they overwrite it, or take only its shape.
WRITE_ONLY = {
    f"aten::{name}" for name in ("copy_", "fill_", "zero_", "new_zeros", "zeros_like", "ones_like", "full_like")
}


@dataclass(frozen=True)
class Operator:
    """One call of a PyTorch operator; one that copies from the host to the device is called `UPLOAD`.

    `inputs` and `outputs` are the shapes of the tensors it is given and of those it writes, `dtype` the type of its
    first output, such as "float32". `flops` counts convolutions and matrix products, a multiplication and an addition
    as two; `bytes_moved` is the least that has to be read and written. `range` is labkit's range round it, without
    "labkit: ". A view moves nothing. `stream` is 0 for the main stream, else 1, 2, ... in the order they were made;
    `after` has the positions, among the operators, of those on other streams that it waits for.
    """

    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    flops: int
    bytes_moved: int
    range: str
    is_view: bool
    stream: int
    after: tuple[int, ...]

    @property
    def signature(self) -> str:
        """Name, shapes and type: operators that agree in it take equally long."""
        return signature(self.name, self.inputs, self.outputs, self.dtype)


def record_operators(model: nn.Module, *speedups: str | type, batch_size: int = 1, size: int = 256) -> list[Operator]:
    """The operators of one step of `model` on `batch_size` pictures of `size` x `size` pixels, in their order.

    The step is not the first one: Adam has its moments, and the pool its buffer. `model` itself is not touched.

    Args:
        model: a `labkit.CycleGAN` or another model with players.
        speedups: as for `labkit.make_step`. Those that put networks on streams may do so in `cycles` and `judge`,
            and wait with `wait_stream` or events. "graph" and "compile" cannot be recorded.
        batch_size, size: of the batch.

    Raises:
        LabkitError: a speed-up cannot be recorded or does not suit the model, or the batch does not fit it.
    """
    with meta_step(model, *speedups, batch_size=batch_size, size=size) as (step, batch, schedule):
        step(*batch)
        with Recorder(schedule) as recorder:
            step(*batch)
    return recorder.operators


@contextmanager
def meta_step(
    model: nn.Module, *speedups: str | type, batch_size: int, size: int, accumulate: int | None = None
) -> Iterator[tuple[Step, Batch, Schedule]]:
    """A step of a copy of `model` on the meta device, a batch for it, and the schedule of the streams it uses.

    Inside it what a GPU has stands in for what the meta device has not. Arguments as for `labkit.make_step`.

    Raises:
        LabkitError: a speed-up cannot act on the meta device or does not suit the model, or the batch does not fit it.
    """
    if refused := sorted(name for name in speedups if name in GPU_ONLY):
        raise LabkitError(
            f"{', '.join(refused)}: acts on a GPU only, so its operators cannot be recorded here. "
            "labkit.simulate.replay plays any step as a graph."
        )
    model = copy.deepcopy(model).to("meta")
    for pool in model.pools.values():
        pool.buffer = None  # no parameter, so it stayed behind; the first step makes one where the fakes are
    real_a, real_b = (torch.empty(batch_size, 3, size, size, device="meta") for _ in range(2))
    schedule = Schedule()
    with standing_in(schedule):
        step = make_step(model, OnCUDA, *speedups, accumulate=accumulate)
        step.range_checked = True  # the range of pictures without values cannot be looked at
        for optimizer in step.optimizers.values():
            for group in optimizer.param_groups:
                group["foreach"] = not group["fused"]  # which PyTorch chooses by itself on a GPU
        yield step, (real_a, real_b), schedule


class Recorder(TorchDispatchMode):
    """Sees every operator on its way to the device, and the ranges of `record_function`, which are operators, too."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.operators: list[Operator] = []
        self._ranges: list[str] = []  # those we are in, innermost last

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        if operator.namespace == "profiler":
            self._follow_range(operator.name(), args)
        elif call := call_on("meta", operator, args, kwargs, result):
            flops = FLOPS.get(operator.overloadpacket, _no_flops)(*args, **kwargs, out_val=result)
            self.operators.append(self._noted(call, flops, operator.is_view))
        return result

    def _follow_range(self, name: str, args: tuple) -> None:
        if "enter" in name:
            self._ranges.append(args[0])
        else:
            self._ranges.pop()

    def _noted(self, call: Call, flops: int, is_view: bool) -> Operator:
        bytes_moved = 0 if is_view else _bytes_moved(call)
        ours = [entered.removeprefix(RANGE) for entered in self._ranges if entered.startswith(RANGE)]
        where = self.schedule.add(call.inputs, [] if is_view else call.outputs)
        return Operator(
            call.name, *call.shapes, call.dtype, flops, bytes_moved, ours[-1] if ours else "", is_view, *where
        )


def _no_flops(*args: Any, **kwargs: Any) -> int:
    """For operators that only move data, as the count has it."""
    return 0


def _bytes_moved(call: Call) -> int:
    """Every input read and every output written once; of the pool's buffer only the slots that are exchanged."""
    if call.name == "aten::index":
        return 2 * _bytes(call.outputs)
    if call.name == "aten::index_copy_":
        return 2 * _bytes(call.inputs[-1:])
    return _bytes(call.inputs[1:] if call.name in WRITE_ONLY else call.inputs) + _bytes(call.outputs)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """What these tensors hold in memory: one that was expanded is there only once."""
    return sum(
        math.prod(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride) * tensor.itemsize
        for tensor in tensors
    )
