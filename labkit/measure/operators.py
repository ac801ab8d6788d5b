"""What tells the calls of PyTorch's operators apart: those that agree in their signature take equally long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_leaves

Shape = tuple[int, ...]

UPLOAD = "upload"


class Call(NamedTuple):
    """An operator's name, or `UPLOAD` if it copies from the host to the device, and the tensors it reads and writes."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]

    @property
    def shapes(self) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
        """Those of the inputs, those of the outputs."""
        inputs, outputs = (tuple(tuple(tensor.shape) for tensor in some) for some in (self.inputs, self.outputs))
        return inputs, outputs

    @property
    def dtype(self) -> str:
        """Of the first output, such as "float32"."""
        return str(self.outputs[0].dtype).removeprefix("torch.")


def call_on(device_type: str, operator: Any, args: tuple, kwargs: dict, result: Any) -> Call | None:
    """What a `TorchDispatchMode` is shown, if this type of device runs it: None for the host's own, as Adam's count."""
    inputs = _tensors_in([args, kwargs])
    outputs = _tensors_in(result) or _tensors_in(args[:1])  # _foreach ones write to their first list, return nothing
    if operator.namespace != "aten" or not outputs or outputs[0].device.type != device_type:
        return None
    from_host = inputs and all(tensor.device.type != device_type for tensor in inputs)
    return Call(UPLOAD if from_host else operator.name().partition(".")[0], inputs, outputs)


def signature(name: str, inputs: Iterable[Shape], outputs: Iterable[Shape], dtype: str) -> str:
    """What durations are looked up by: a name, the shapes read and written, the first output's type."""
    return f"{name} {' '.join(map(str, inputs))} -> {dtype} {' '.join(map(str, outputs))}"


def _tensors_in(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
