"""Operators -> kernels and how long each takes: measured durations where there are any, else a roofline.

A roofline is a bound, not a prediction: real kernels can take several times as long. So read ratios off what it
gives, with a range, and never times.

Left out are the kernels by which cuDNN changes a picture's memory layout for tensor cores and back: whether there are
any depends on the device and on the algorithm it chooses. They would be up to 8 for a convolution and its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from labkit.errors import check_known
from labkit.measure.durations import UPLOAD
from labkit.measure.roofline import roofline_seconds
from labkit.simulate.operators import Operator


@dataclass(frozen=True)
class Roofline:
    """What a device can do at most.

    `flops_per_s`, by type, and `bytes_per_s` are dense peaks from NVIDIA's data sheets, for convolutions as PyTorch
    computes them by default: those in float32 in TF32 where the device has it. A type that is missing is one that the
    device does not compute in. `flops_share` and `bytes_share` are what large kernels reach of them, `least_us` is the
    shortest kernel in microseconds: typical values, not measured on each device.
    """

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    flops_share: float = 0.5
    bytes_share: float = 0.85
    least_us: float = 2.0

    def microseconds(self, flops: float, bytes_moved: float, dtype: str = "float32") -> float:
        """The longer of computing and moving, and at least the shortest kernel.

        Raises:
            LabkitError: there is something to compute, in a type that the device does not compute in.
        """
        reached = math.inf  # where there is nothing to compute
        if flops:
            check_known(f"{self.device}: type", dtype, self.flops_per_s)
            reached = self.flops_per_s[dtype] * self.flops_share
        seconds = roofline_seconds(flops, bytes_moved, reached, self.bytes_per_s * self.bytes_share)
        return max(1e6 * seconds, self.least_us)


ROOFLINES = {
    "T4": Roofline("T4", {"float32": 8.1e12, "float16": 65e12}, 320e9),
    "A100": Roofline("A100", {"float32": 156e12, "float16": 312e12, "bfloat16": 312e12}, 1555e9),
    "H100": Roofline("H100", {"float32": 494.7e12, "float16": 989e12, "bfloat16": 989e12}, 3350e9),
}


class Part(NamedTuple):
    """A kernel's name and what it has of its operator's work, as shares of `flops` and of `bytes_moved`."""

    name: str
    flops: float = 0.0
    bytes_moved: float = 1.0


# The operators that launch several kernels, or none, or a copy. With x the size of a picture, batch norm (which
# instance norm is made of) moves 2x as counted, but reads its input twice; backward moves 3x, but reads two of them
# twice.
PARTS = {
    "aten::empty": (),
    "aten::empty_like": (),
    "aten::new_empty": (),
    "aten::new_empty_strided": (),
    "aten::empty_strided": (),
    "aten::_unsafe_view": (),
    "aten::native_batch_norm": (
        Part("batch_norm_collect_statistics", bytes_moved=1 / 2),
        Part("batch_norm_inverse_deviation", bytes_moved=0),
        Part("batch_norm_transform_input"),
    ),
    "aten::native_batch_norm_backward": (Part("batch_norm_backward", bytes_moved=5 / 3),),
    "aten::reflection_pad2d_backward": (
        Part("fill", bytes_moved=1 / 3),
        Part("reflection_pad2d_backward", bytes_moved=2 / 3),
    ),
    "aten::copy_": (Part("Memcpy DtoD (Device -> Device)"),),
    "aten::clone": (Part("Memcpy DtoD (Device -> Device)"),),
    UPLOAD: (Part("Memcpy HtoD (Pinned -> Device)"),),
}

# One launch of an operator on lists of tensors takes at most so many, by how many lists it is given, and 320 blocks
# of 65536 elements. Source: PyTorch, aten/src/ATen/native/cuda/MultiTensorApply.cuh.
ON_LISTS = ("_foreach", "_fused_adam", "_amp_foreach")
FOREACH_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36}
FOREACH_ELEMENTS = 320 * 65536


class Kernel(NamedTuple):
    """A kernel of a step: its duration in microseconds, and its operator's place in the list of operators."""

    name: str
    us: float
    operator: int


def kernels(
    operators: Sequence[Operator], roofline: Roofline, durations: Mapping[str, float] | None = None
) -> list[Kernel]:
    """The kernels that the operators launch, in their order.

    `durations` has microseconds by `Operator.signature`, all kernels of the operator together: they share it as the
    roofline would have it. An operator without a measured duration takes what the roofline gives.

    Raises:
        LabkitError: the device of the roofline does not compute in the type of a convolution.
    """
    found = []
    for place, operator in enumerate(operators):
        parts = parts_of(operator)
        us = [
            roofline.microseconds(part.flops * operator.flops, part.bytes_moved * operator.bytes_moved, operator.dtype)
            for part in parts
        ]
        measured = (durations or {}).get(operator.signature)
        scale = 1.0 if measured is None or not parts else measured / sum(us)
        found += [Kernel(part.name, scale * time, place) for part, time in zip(parts, us, strict=True)]
    return found


def parts_of(operator: Operator) -> Sequence[Part]:
    """The kernels that an operator launches on a GPU: most launch one, views none."""
    short = operator.name.removeprefix("aten::")
    if operator.name in PARTS:
        return PARTS[operator.name]
    if operator.is_view:
        return ()
    if short == "convolution":
        with_bias = len(operator.inputs) == 3
        return [Part("convolution", flops=1)] + [Part("add_bias")] * with_bias
    if short == "convolution_backward":
        return convolution_backward(operator)
    if short.startswith(ON_LISTS):
        launches = foreach_launches(operator)
        return [Part(f"multi_tensor_apply {short}", bytes_moved=1 / launches)] * launches
    return [Part(short, flops=1)]


def convolution_backward(operator: Operator) -> list[Part]:
    """A kernel for each gradient that is asked for: of the input, of the weight and of the bias."""
    _, pictures, weight = operator.inputs[:3]
    wanted = [what for what, shape in (("input", pictures), ("weight", weight)) if shape in operator.outputs]
    share = 1 / max(1, len(wanted))
    parts = [Part(f"convolution grad_{what}", flops=share, bytes_moved=share) for what in wanted]
    bias_wanted = any(len(shape) == 1 for shape in operator.outputs)
    return parts + [Part("convolution grad_bias", bytes_moved=1 / 3)] * bias_wanted


def foreach_launches(operator: Operator) -> int:
    """How many launches an operator on lists needs for all its tensors."""
    tensors = len(operator.outputs)
    lists = min(max(1, len(operator.inputs) // tensors), max(FOREACH_TENSORS))
    elements = sum(math.prod(shape) for shape in operator.outputs)
    return max(math.ceil(tensors / FOREACH_TENSORS[lists]), math.ceil(elements / FOREACH_ELEMENTS))
