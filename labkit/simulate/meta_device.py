"""The operators and the memory of one training step, without computing it: the real step, on PyTorch's meta device.

The meta device knows shapes only, so a full-size step takes about a second on any machine. PyTorch picks the same
operators there as on a GPU, forward, backward and optimiser. `labkit.simulate.cost_model` says which kernels they
launch. `labkit.simulate.cuda_stubs` replaces the parts of CUDA that speed-ups need.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.errors import LabkitError
from labkit.measure.record import Pair
from labkit.measure.roofline import FLOPS
from labkit.models.model import Model
from labkit.models.step import RANGE, Step
from labkit.simulate.as_on_gpu import as_on_gpu, has_channels_last
from labkit.simulate.cuda_stubs import Schedule
from labkit.variants.registry import make_step

Shape = tuple[int, ...]

UPLOAD = "upload"
BEFORE = "before the step"
EVAL_BATCH_NORM = "aten::_native_batch_norm_legit_no_training"  # its name where PyTorch has one of its own for it
NAMESPACES = ("aten", "labkit")  # PyTorch's operators, and our own: other calls are the profiler's
GPU_ONLY = {"graph", "compile", "channels_last"}  # fail on the meta device
# Operators that do not read their first argument: they overwrite it, or take only its shape.
WRITE_ONLY = {
    f"aten::{name}" for name in ("copy_", "fill_", "zero_", "new_zeros", "zeros_like", "ones_like", "full_like")
}


@dataclass(frozen=True)
class Operator:
    """One call of a PyTorch operator. The name is `UPLOAD` for a copy from the host to the device.

    Attributes:
        inputs, outputs: the shapes of the tensors that it reads and writes.
        dtype: the type of its first output, for example "float32".
        flops: for convolutions and matrix products. A multiplication and an addition count as two.
        bytes_moved: the least that has to be read and written, 0 for a view.
        range: labkit's range around it, without "labkit: ".
        stream: 0 for the main stream. The others count from 1, in the order they were made.
        after: the positions, in the list of operators, of the operators on other streams that it waits for.
        reused: of each tensor that it reads, the bytes, and how many bytes operators have moved since one of them used
            it. A cache of that size still has it.
        channels_last: the shapes of those inputs whose channels lie side by side in memory.
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
    reused: tuple[tuple[int, float], ...] = ()
    channels_last: tuple[Shape, ...] = ()


def step_operators(model: Model, *speedups: str | type, batch_size: int = 1, size: int = 256) -> list[Operator]:
    """The operators of one step of `model` on `batch_size` pictures of `size` x `size` pixels, in their order.

    The step is not the first one: Adam has its moments, and the pool its buffer. `model` itself is not touched.

    Args:
        model: a `labkit.CycleGAN` or another model with players. For others: `program_operators`.
        speedups: as for `labkit.make_step`. They may use CUDA streams and events, but must not let the host wait.
            "graph", "channels_last" and those that compile cannot be recorded.
        batch_size: pictures of each domain.
        size: height and width of the pictures, in pixels.

    Raises:
        LabkitError: a speed-up cannot be recorded or does not suit the model, or the batch does not fit it.
    """
    with meta_step(model, *speedups, batch_size=batch_size, size=size) as (step, batch, schedule):
        step(*batch)  # Adam makes its moments, and the pools their buffers
        with Recorder(schedule) as recorder:
            step(*batch)
    return recorder.operators


def step_memory(model: Model, *speedups: str | type, batch_size: int = 1, size: int = 256) -> int:
    """The peak memory of a training step's tensors, in bytes: COUNTED on the meta device, not measured.

    The count includes weights, gradients, Adam's moments, pools, the batch and everything that is kept for the
    backward pass. A GPU needs more: CUDA itself, the workspaces of cuDNN, and memory that its allocator rounds up or
    leaves unused. So a step does not fit if its count is close to the GPU's memory.

    Args:
        model, speedups, batch_size, size: as for `step_operators`.

    Raises:
        LabkitError: a speed-up cannot act on the meta device or does not suit the model, or the batch does not fit it.
    """
    with LiveBytes() as live, meta_step(model, *speedups, batch_size=batch_size, size=size) as (step, batch, _):
        step(*batch)  # Adam makes its moments, and the pools their buffers
        step(*batch)
    return live.peak


def memory_events(model: Model, *speedups: str | type, batch_size: int = 1, size: int = 256) -> list[tuple[str, int]]:
    """Which part of a training step takes memory, and gives it back: COUNTED on the meta device, not measured.

    Returns:
        (range, bytes) in their order: labkit's range in which a tensor was made, such as "generators forward", and its
        bytes, below 0 when it goes. The first pair is all that lives before the step, called "before the step".

    Args and errors are those of `step_memory`.
    """
    with LiveBytes() as live, meta_step(model, *speedups, batch_size=batch_size, size=size) as (step, batch, _):
        step(*batch)
        live.begin_step()
        step(*batch)
        return list(live.events)


@contextmanager
def meta_step(model: Model, *speedups: str | type, batch_size: int, size: int) -> Iterator[tuple[Step, Pair, Schedule]]:
    """A step of a copy of `model` on the meta device, a batch for it, and the schedule of the streams it uses.

    The stubs for CUDA are in place until the context ends.

    Raises:
        LabkitError: a speed-up cannot act on the meta device or does not suit the model, or the batch does not fit it.
    """
    if refused := sorted(name for name in speedups if isinstance(name, str) and name in GPU_ONLY):
        raise LabkitError(
            f"{', '.join(refused)}: acts on a GPU only, so leave it out; labkit.simulate.replay(..., graph=True) plays "
            "any step as a graph."
        )
    model = copy.deepcopy(model).to("meta")
    with as_on_gpu() as schedule:
        step = make_step(model, *speedups)  # first: it refuses a network that is no model of labkit's
        for pool in model.pools.values():
            pool.buffer = None  # no parameter, so it stayed behind; the first step makes a new one on the meta device
        real_a, real_b = (torch.empty(batch_size, channels, size, size, device="meta") for channels in model.channels)
        step.range_checked = True  # the pictures have no values, so their range cannot be checked
        for optimizer in step.optimizers.values():
            for group in optimizer.param_groups:
                group["foreach"] = not group["fused"]  # PyTorch's own choice on a GPU
        yield step, (real_a, real_b), schedule


class InRanges(TorchDispatchMode):
    """Inside `with`, knows labkit's ranges: those of `record_function` reach a dispatch mode as operators, too."""

    def __init__(self) -> None:
        super().__init__()
        self._ranges: list[str] = []  # the ranges we are in, the innermost last

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if operator.namespace == "profiler" and "enter" in operator.name():
            self._ranges.append(args[0])
        elif operator.namespace == "profiler":
            self._ranges.pop()
        return operator(*args, **(kwargs or {}))

    @property
    def range(self) -> str:
        """The innermost of labkit's ranges that we are in, without "labkit: ", or "" outside of all."""
        ours = [entered.removeprefix(RANGE) for entered in self._ranges if entered.startswith(RANGE)]
        return ours[-1] if ours else ""


class Recorder(InRanges):
    """Inside `with`, collects every operator that is called on the meta device, in the list `operators`."""

    def __init__(self, schedule: Schedule | None = None) -> None:
        super().__init__()
        self.schedule = schedule or Schedule()
        self.operators: list[Operator] = []
        self._moved = 0  # bytes, by all operators
        self._used: dict[int, int] = {}  # of each storage, how many bytes were moved when it was used last

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = super().__torch_dispatch__(operator, types, args, kwargs)
        if call := _call(operator, args, kwargs, result):
            formula = FLOPS.get(operator.overloadpacket)  # there is none for operators that only move data
            flops = formula(*args, **kwargs, out_val=result) if formula else 0
            view = operator.is_view
            moved, written = (0, []) if view else (_bytes_moved(call), call.outputs)
            where = self.schedule.add(call.inputs, written)
            reused = self._reused(call, moved)
            last = tuple(tuple(tensor.shape) for tensor in call.inputs if has_channels_last(tensor))
            self.operators.append(
                Operator(call.name, *call.shapes, call.dtype, flops, moved, self.range, view, *where, reused, last)
            )
        return result

    def _reused(self, call: Call, moved: int) -> tuple[tuple[int, float], ...]:
        """The `Operator.reused` of a call that moves so many bytes."""
        if not moved:
            return ()
        read = call.inputs[1:] if call.name in WRITE_ONLY else call.inputs
        reused = tuple((_bytes([tensor]), self._moved - self._used.get(_storage(tensor), -math.inf)) for tensor in read)
        self._moved += moved
        self._used.update({_storage(tensor): self._moved for tensor in (*call.inputs, *call.outputs)})
        return reused


class Call(NamedTuple):
    """An operator's name, or `UPLOAD` if it copies from the host to the device, and the tensors it reads and writes."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]

    @property
    def shapes(self) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
        """The shapes of the inputs, and the shapes of the outputs."""
        inputs, outputs = (tuple(tuple(tensor.shape) for tensor in some) for some in (self.inputs, self.outputs))
        return inputs, outputs

    @property
    def dtype(self) -> str:
        """The type of the first output, for example "float32"."""
        return str(self.outputs[0].dtype).removeprefix("torch.")


def _call(operator: Any, args: tuple, kwargs: dict, result: Any) -> Call | None:
    """The call that a `TorchDispatchMode` sees, if the meta device runs it, or None for the host's own."""
    inputs = _tensors_in([args, kwargs])
    outputs = _tensors_in(result) or _tensors_in(args[:1])  # _foreach operators write to their first list
    if operator.namespace not in NAMESPACES or not outputs or outputs[0].device.type != "meta":
        return None
    name = operator.name().partition(".")[0]
    if inputs and all(tensor.device.type != "meta" for tensor in inputs):
        name = UPLOAD
    elif name == "aten::native_batch_norm" and not args[5]:
        name = EVAL_BATCH_NORM
    if "native_batch_norm" in name and outputs[0].dtype == torch.float16:
        weight = args[2 if "backward" in name else 1]
        if weight is not None and weight.dtype == torch.float32:  # as under autocast: PyTorch calls cuDNN
            name = name.replace("native", "cudnn")
    return Call(name, inputs, outputs)


def _tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes_moved(call: Call) -> int:
    """Every input is read and every output written once, but of the pool's buffer only the slots that are exchanged."""
    if call.name == "aten::index":
        return 2 * _bytes(call.outputs)
    if call.name == "aten::index_copy_":
        return 2 * _bytes(call.inputs[-1:])
    return _bytes(call.inputs[1:] if call.name in WRITE_ONLY else call.inputs) + _bytes(call.outputs)


def _storage(tensor: Tensor) -> int:
    """A number for the memory that a tensor and its views share, until it is freed."""
    return tensor.untyped_storage()._cdata


def _bytes(tensors: Iterable[Tensor]) -> int:
    """The memory of these tensors. A tensor that was expanded takes only the memory of the original."""
    return sum(
        math.prod(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride) * tensor.itemsize
        for tensor in tensors
    )


class LiveBytes(InRanges):
    """Inside `with`, counts the bytes of the tensors that operators read or make on a device, while they live.

    `now` counts the living tensors, `peak` is the largest value of `now`. Views share the memory of their base.
    `events` has a pair for each tensor that came, of labkit's range and its bytes, and the same with minus its bytes
    when it went.

    Args:
        device: the type of the device, such as "cpu". Tensors on other devices do not count.
    """

    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self.device = device
        self.now = self.peak = 0
        self.events: list[tuple[str, int]] = []
        self._steps = 0
        self._known: weakref.WeakSet[UntypedStorage] = weakref.WeakSet()

    def begin_step(self) -> None:
        """Begins `events` again: with one pair for all that lives now, called `BEFORE`."""
        self._steps += 1
        self.events = [(BEFORE, self.now)]

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = super().__torch_dispatch__(operator, types, args, kwargs)
        for tensor in _tensors_in([args, kwargs, result]):
            if tensor.device.type == self.device:
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        self.events.append((self.range, storage.nbytes()))
        weakref.finalize(storage, self._forget, self._steps, self.range, storage.nbytes())

    def _forget(self, step: int, name: str, size: int) -> None:
        self.now -= size
        self.events.append((name if step == self._steps else BEFORE, -size))
