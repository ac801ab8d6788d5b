"""One call of an operator, and the signature by which its duration is looked up.

Calls of PyTorch's operators that agree in their signature take equally long, so one measurement stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_leaves

Shape = tuple[int, ...]

UPLOAD = "upload"
NAMESPACES = ("aten", "labkit")  # PyTorch's operators, and our own: other calls are the profiler's


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
    """The call that a `TorchDispatchMode` sees, if this type of device runs it, or None for the host's own."""
    inputs = _tensors_in([args, kwargs])
    outputs = _tensors_in(result) or _tensors_in(args[:1])  # _foreach ones write to their first list, return nothing
    if operator.namespace not in NAMESPACES or not outputs or outputs[0].device.type != device_type:
        return None
    from_host = inputs and all(tensor.device.type != device_type for tensor in inputs)
    return Call(UPLOAD if from_host else operator.name().partition(".")[0], inputs, outputs)


def signature(name: str, inputs: Iterable[Shape], outputs: Iterable[Shape], dtype: str) -> str:
    """The key to look durations up by: a name, the shapes read and written, the type of the first output."""
    return f"{name} {' '.join(map(str, inputs))} -> {dtype} {' '.join(map(str, outputs))}"


def _tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
