"""How long each operator of a step takes on this device: `labkit.simulate.replay` prefers this to a roofline.

Calls of PyTorch's operators that agree in their signature take equally long, so one measurement stands for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.measure.record import Batch, preserving_state
from labkit.models.step import Step

Shape = tuple[int, ...]

UPLOAD = "upload"
REPEATS = 10
HEAD_START = 10_000_000  # clock cycles, some milliseconds


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


def call_on(device_type: str, operator: Any, args: tuple, kwargs: dict, result: Any) -> Call | None:
    """The call that a `TorchDispatchMode` sees, if this type of device runs it; None for the host's own operators."""
    inputs = _tensors_in([args, kwargs])
    outputs = _tensors_in(result) or _tensors_in(args[:1])  # _foreach ones write to their first list, return nothing
    if operator.namespace != "aten" or not outputs or outputs[0].device.type != device_type:
        return None
    from_host = inputs and all(tensor.device.type != device_type for tensor in inputs)
    return Call(UPLOAD if from_host else operator.name().partition(".")[0], inputs, outputs)


def signature(name: str, inputs: Iterable[Shape], outputs: Iterable[Shape], dtype: str) -> str:
    """The key to look durations up by: a name, the shapes read and written, the type of the first output."""
    return f"{name} {' '.join(map(str, inputs))} -> {dtype} {' '.join(map(str, outputs))}"


def operator_durations(step: Step, batch: Batch) -> dict[str, float]:
    """Microseconds that each operator of the step takes on its device, by `signature`.

    Each signature is measured where it first occurs, ten times in a row on the very tensors of the step; afterwards
    the step has its state from before. On a GPU all ten are launched while it is still busy with other work, so that
    the time does not include the host's launch overhead.
    """
    with preserving_state(step):
        step(*batch)  # libraries choose their kernels, Adam makes its state
        with _Stopwatch(batch[0].device) as stopwatch:
            step(*batch)
    return stopwatch.microseconds


class _Stopwatch(TorchDispatchMode):
    """Measures every operator whose signature it has not seen yet."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.microseconds: dict[str, float] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        call = call_on(self.device.type, operator, args, kwargs, result)
        if call is None:
            return result
        key = signature(call.name, *call.shapes, call.dtype)
        if key not in self.microseconds:
            self.microseconds[key] = self.measure(lambda: operator(*args, **kwargs))
        return result

    def measure(self, run: Callable[[], Any]) -> float:
        """Microseconds of one run."""
        if self.device.type != "cuda":
            started = time.perf_counter()
            for _ in range(REPEATS):
                run()
            return 1e6 * (time.perf_counter() - started) / REPEATS
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START)
        begin.record()
        for _ in range(REPEATS):
            run()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / REPEATS


def _tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
