"""Operators -> kernels and their durations: measured durations where there are any, else a roofline.

A roofline is a bound, not a prediction: real kernels can take several times as long. So read its results as ratios,
with a range, and never as times.

We leave out the kernels by which cuDNN changes the memory layout of a picture for tensor cores and back. Their number
depends on the device and on the algorithm: up to 8 for a convolution and its gradients.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from labkit.errors import check_known
from labkit.measure.durations import UPLOAD
from labkit.measure.roofline import roofline_seconds
from labkit.measure.timing import alternate
from labkit.simulate.operators import Operator, Recorder
from labkit.stamp import stamp

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Roofline:
    """The peak rates of a device, and how much of them large kernels reach.

    Attributes:
        device: its name.
        flops_per_s: dense peak by type, from NVIDIA's data sheets, for convolutions as PyTorch computes them by
            default: float32 ones in TF32 where the device has it. The device cannot compute in a type that is missing.
        bytes_per_s: peak of the memory, from the same data sheets.
        host_bytes_per_s: peak of PCIe from the host to the device, half of what the data sheets give for both ways.
        flops_share, bytes_share: the shares of these peaks that large kernels reach: typical values, not measured on
            each device.
        least_us: the shortest kernel, in microseconds; a typical value, too, except for the V100.
        winograd: the types whose convolutions of 3 x 3 take Winograd's algorithm, see `takes_winograd`: float32 where
            it is no TF32. Tensor cores compute the plain sum.
    """

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    host_bytes_per_s: float = 32e9
    flops_share: float = 0.5
    bytes_share: float = 0.85
    least_us: float = 2.0
    winograd: tuple[str, ...] = ()

    def microseconds(self, flops: float, bytes_moved: float, dtype: str = "float32") -> float:
        """Microseconds for this work: the longer of computing and moving data, and at least the shortest kernel.

        Raises:
            LabkitError: there is something to compute, in a type that the device cannot compute in.
        """
        reached = math.inf  # where there is nothing to compute
        if flops:
            check_known(f"{self.device}: type", dtype, self.flops_per_s)
            reached = self.flops_per_s[dtype] * self.flops_share
        seconds = roofline_seconds(flops, bytes_moved, reached, self.bytes_per_s * self.bytes_share)
        return max(1e6 * seconds, self.least_us)

    def upload_microseconds(self, bytes_moved: float) -> float:
        """Microseconds to copy from the host. `bytes_moved` counts each byte twice, once read and once written."""
        return max(1e6 * bytes_moved / 2 / (self.host_bytes_per_s * self.bytes_share), self.least_us)


ROOFLINES = {  # from the oldest to the newest
    # The shortest kernel of the V100 recording "v100_nanoseconds" in data/traces/public.
    "V100": Roofline(
        "V100", {"float32": 15.7e12, "float16": 125e12}, 900e9, 16e9, least_us=1.25, winograd=("float32",)
    ),
    "T4": Roofline("T4", {"float32": 8.1e12, "float16": 65e12}, 320e9, 16e9, winograd=("float32",)),
    "A100": Roofline("A100", {"float32": 156e12, "float16": 312e12, "bfloat16": 312e12}, 1555e9, 32e9),
    "H100": Roofline("H100", {"float32": 494.7e12, "float16": 989e12, "bfloat16": 989e12}, 3350e9, 64e9),
}
# Winograd's algorithm computes 2 x 2 results of a 3 x 3 convolution with 16 multiplications in place of 36. Source:
# Lavin, Gray: "Fast algorithms for convolutional neural networks", 2015, section 4.1.
WINOGRAD = 36 / 16


class Part(NamedTuple):
    """A kernel's name and its part of the operator's work, as shares of `flops` and of `bytes_moved`."""

    name: str
    flops: float = 0.0
    bytes_moved: float = 1.0


# The operators that launch several kernels, or none, or a copy. Let x be the size of a picture. Batch norm (which
# instance norm consists of) counts as moving 2x, but reads its input twice; its backward pass counts as moving 3x, but
# reads two of these twice.
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

# One launch of an operator on lists of tensors takes at most so many tensors, by the number of its lists, and at most
# 320 blocks of 65536 elements. Source: PyTorch, aten/src/ATen/native/cuda/MultiTensorApply.cuh.
ON_LISTS = ("_foreach", "_fused_adam", "_amp_foreach")
FOREACH_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36}
FOREACH_ELEMENTS = 320 * 65536


ROUNDS = 6  # measurements of each network in `network_costs`, after one that does not count


class Kernel(NamedTuple):
    """A kernel of a step: its duration in microseconds, and its operator's place in the list of operators."""

    name: str
    us: float
    operator: int


def kernels(
    operators: Sequence[Operator], roofline: Roofline, durations: Mapping[str, float] | None = None
) -> list[Kernel]:
    """The kernels that the operators launch, in their order.

    `durations` holds microseconds by `Operator.signature`, for all kernels of the operator together; the roofline says
    how they divide it. An operator that is not in `durations` takes the duration of the roofline.

    Raises:
        LabkitError: the device of the roofline cannot compute in the type of a convolution.
    """
    found = []
    for place, operator in enumerate(operators):
        parts = parts_of(operator)
        flops = operator.flops / (WINOGRAD if operator.dtype in roofline.winograd and takes_winograd(operator) else 1)
        us = [
            roofline.upload_microseconds(operator.bytes_moved)
            if operator.name == UPLOAD
            else roofline.microseconds(part.flops * flops, part.bytes_moved * operator.bytes_moved, operator.dtype)
            for part in parts
        ]
        measured = (durations or {}).get(operator.signature)
        scale = 1.0 if measured is None or not parts else measured / sum(us)
        found += [Kernel(part.name, scale * time, place) for part, time in zip(parts, us, strict=True)]
    return found


def takes_winograd(operator: Operator) -> bool:
    """Whether it is a convolution of 3 x 3 with stride 1 and no groups, or the gradient of one.

    The shapes do not tell the stride: with 1, a picture loses at most two pixels each way.
    """
    if operator.name == "aten::convolution":
        (pictures, weight), results = operator.inputs[:2], operator.outputs[0]
    elif operator.name == "aten::convolution_backward":
        results, pictures, weight = operator.inputs[:3]
    else:
        return False
    lost = [before - after for before, after in zip(pictures[2:], results[2:], strict=True)]
    stride_1 = all(0 <= pixels <= 2 for pixels in lost) and min(results[2:]) > 3
    return weight[2:] == (3, 3) and weight[1] == pictures[1] and stride_1


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
    """A kernel for each gradient that is computed: of the input, of the weight and of the bias."""
    _, pictures, weight = operator.inputs[:3]
    wanted = [name for name, shape in (("input", pictures), ("weight", weight)) if shape in operator.outputs]
    share = 1 / max(1, len(wanted))
    parts = [Part(f"convolution grad_{name}", flops=share, bytes_moved=share) for name in wanted]
    bias_wanted = any(len(shape) == 1 for shape in operator.outputs)
    return parts + [Part("convolution grad_bias", bytes_moved=1 / 3)] * bias_wanted


def foreach_launches(operator: Operator) -> int:
    """The number of launches that an operator on lists needs for all its tensors."""
    tensors = len(operator.outputs)
    lists = min(max(1, len(operator.inputs) // tensors), max(FOREACH_TENSORS))
    elements = sum(math.prod(shape) for shape in operator.outputs)
    return max(math.ceil(tensors / FOREACH_TENSORS[lists]), math.ceil(elements / FOREACH_ELEMENTS))


def surveyed_roofline(results: Mapping) -> Roofline:
    """The limits of a GPU as its survey measured them: the rates of large matrix products and copies, in full.

    Args:
        results: from `labkit.gpu_results`.
    """
    measured = results["rows"]["device"]
    rates = dict(measured["matmul_flop_per_s"])
    winograd = () if "tf32" in rates else ("float32",)
    rates["float32"] = rates.pop("tf32", rates["float32"])  # as PyTorch computes convolutions by default
    bytes_per_s = measured["copy_bytes_per_s"]
    device = f"{results['stamp']['device']}, as surveyed"
    return Roofline(device, rates, bytes_per_s, flops_share=1.0, bytes_share=1.0, winograd=winograd)


def network_costs(networks: Mapping[str, nn.Module], picture: Tensor) -> pandas.DataFrame:
    """Parameters, FLOPs, bytes and time of one forward and backward pass of each network.

    FLOPs and bytes are counted: the FLOPs of convolutions, and the least number of bytes that all operators have to
    read and write. The time is measured, in turn for each network. Where there are few FLOPs for each byte, memory
    limits the time, and fewer FLOPs do not shorten it.

    Args:
        networks: by name, on the picture's device; their gradients are dropped.
        picture: (B, 3, H, W) in [-1, 1], of a size that all networks take.

    Returns:
        A row a network: parameters; flops; bytes_moved; flop_per_byte; median_s. ``attrs["stamp"]`` names
        the device, ``attrs["seconds"]`` holds every measurement.
    """
    import pandas

    seconds = alternate({name: _pass(network, picture) for name, network in networks.items()}, ROUNDS, warmup=1)
    rows = {}
    for name, network in networks.items():
        shapes_only = _pass(copy.deepcopy(network).to("meta"), picture.to("meta"))
        with Recorder() as recorder:
            shapes_only()
        flops = sum(operator.flops for operator in recorder.operators)
        moved = sum(operator.bytes_moved for operator in recorder.operators)
        parameters = sum(weight.numel() for weight in network.parameters())
        rows[name] = [parameters, flops, moved, flops / moved, statistics.median(seconds[name])]
    columns = ["parameters", "flops", "bytes_moved", "flop_per_byte", "median_s"]
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.attrs = {"stamp": stamp() | {"batch_shape": list(picture.shape), "rounds": ROUNDS}, "seconds": seconds}
    return table


def _pass(network: nn.Module, picture: Tensor) -> Callable[[], None]:
    """A function that runs the network forward and backward, and leaves no gradients."""

    def run() -> None:
        network(picture).mean().backward()
        network.zero_grad()

    return run
