"""Operators -> kernels and their durations, by a roofline.

A roofline is a bound: real kernels can take several times as long. `labkit.simulate.measured` says how far the results
were from steps that others measured. Four numbers, named `CALIBRATED` below, were chosen so that ResNet-9 at batch 1
agrees with the tables of data/paper. `labcourse.paper_errors` holds the model to those at batch 16 and of U-Net.

Convolutions on tensor cores take pictures with the channels last. For pictures with the channels first, cuDNN converts
every input before the convolution with kernels of their own, and float32 results after it, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from labkit.devices import precision
from labkit.measure.roofline import roofline_seconds
from labkit.simulate.meta_device import EVAL_BATCH_NORM, UPLOAD, Operator, Shape
from labtrace.errors import check_known
from labtrace.tables.peaks import PEAKS


@dataclass(frozen=True)
class Roofline:
    """The peak rates of a device, and how much of them large kernels reach.

    Attributes:
        device: its name.
        flops_per_s: dense peak by type: `labtrace.tables.peaks`. The device cannot compute in a type that is missing.
        bytes_per_s: peak of the memory.
        host_bytes_per_s: peak of PCIe from the host to the device, half of what data sheets give for both ways.
        flops_share, bytes_share: the shares of these peaks that large kernels reach: typical values, not measured on
            each device.
        least_us: what every kernel takes besides its work, in microseconds: the duration of the shortest one. A
            typical value, too, except for the V100.
        multiprocessors: their number. A product's result is computed in tiles, each on one of them.
        cache_bytes: of the L2 cache, from the same data sheets.
        is_geforce: whether its tensor cores sum in float32 at half their rate. So each multiprocessor does 512 FLOP a
            clock, and others 1,024 to 4,096, with as fast a shared memory: they need not wait for inputs.
    """

    device: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    host_bytes_per_s: float = 32e9
    flops_share: float = 0.77  # CALIBRATED: the time of all convolutions
    bytes_share: float = 0.85
    least_us: float = 2.0
    multiprocessors: int = 108
    cache_bytes: float = 40e6
    is_geforce: bool = False

    def microseconds(self, flops: float, bytes_moved: float, dtype: str = "float32") -> float:
        """Microseconds for this work: the longer of computing and moving data, after the time of the shortest kernel.

        Raises:
            LabkitError: there is something to compute, in a type that the device cannot compute in.
        """
        reached = math.inf  # where there is nothing to compute
        if flops:
            check_known(f"{self.device}: type", dtype, self.flops_per_s)
            whole = self.is_geforce and dtype != "float32"
            reached = self.flops_per_s[dtype] * (1.0 if whole else self.flops_share)
        seconds = roofline_seconds(flops, bytes_moved, reached, self.bytes_per_s * self.bytes_share)
        return self.least_us + 1e6 * seconds

    def busy_share(self, rows: int, columns: int, products: int = 1) -> float:
        """The share of the peak that so many matrix products reach, each with a result of `rows` x `columns`.

        Parts of one product's sums count as products of their own.

        A kernel computes its result in tiles, each on one multiprocessor. The rest of a tile is padding, and in the
        last round some multiprocessors have nothing left to do. A tile of m x n reads m + n numbers for every m n
        products, so small ones wait for their inputs. The library chooses among the tiles, and we take the fastest.
        Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections on tile and wave quantization.
        """
        shares = []
        for m, n in itertools.product(TILES, repeat=2):
            tiles = math.ceil(rows / m) * math.ceil(columns / n) * products
            rounds = math.ceil(tiles / self.multiprocessors)
            reading = min(1.0, 2 * m * n / (m + n) / FULL_TILE)
            shares.append(reading * rows * columns * products / (rounds * self.multiprocessors * m * n))
        return max(shares)

    def arithmetic(self, dtype: str, is_convolution: bool) -> str:
        """The type in which it multiplies numbers of this type: float32 in TF32 where PyTorch's settings allow that."""
        allowed = precision("cuda", "conv" if is_convolution else "matmul") == "tf32"
        return "tfloat32" if dtype == "float32" and "tfloat32" in self.flops_per_s and allowed else dtype


TILES = (256, 128, 64, 32)  # sides, in numbers
FULL_TILE = 128  # the side from which a square tile waits for no inputs
# By the GPU FLOP/s by type and bytes/s. Nobody has compared a step in float64 with a measured one.
RATES = {
    gpu: ({kind: rate for kind, rate in flops.items() if kind != "float64"}, memory)
    for gpu, (flops, memory) in PEAKS.items()
}
# By every second network of timm's tables of both GPUs: those are "half" in data/measured, and the others "after".
GEFORCE: dict[str, Any] = {"bytes_share": 0.92, "is_geforce": True}
ROOFLINES = {  # from the oldest to the newest
    # From data/traces/public: the shortest kernel of "v100_nanoseconds", the activations' rate in "resnet50_workers0".
    "V100": Roofline(
        "V100", *RATES["V100"], 16e9, bytes_share=0.92, least_us=1.25, multiprocessors=80, cache_bytes=6e6
    ),
    "T4": Roofline("T4", *RATES["T4"], 16e9, multiprocessors=40, cache_bytes=4e6),
    "A100": Roofline("A100", *RATES["A100"], 32e9),
    "RTX 3090": Roofline("RTX 3090", *RATES["RTX 3090"], multiprocessors=82, cache_bytes=6e6, **GEFORCE),
    "H100": Roofline("H100", *RATES["H100"], 64e9, multiprocessors=132, cache_bytes=50e6),
    "RTX 4090": Roofline("RTX 4090", *RATES["RTX 4090"], multiprocessors=128, cache_bytes=72e6, **GEFORCE),
    "H200": Roofline("H200", *RATES["H200"], 64e9, multiprocessors=132, cache_bytes=50e6),
}
# Winograd's algorithm computes 2 x 2 results of a 3 x 3 convolution with 16 multiplications in place of 36. Source:
# Lavin, Gray: "Fast algorithms for convolutional neural networks", 2015, section 4.1.
WINOGRAD = 36 / 16
# Without tiles, a convolution of few channels reaches about a 17th of float32's peak: 17.5 ms for 19.7 GFLOP in the
# tables with two streams of data/paper, `dgrad2d_grouped_direct_kernel`.
DIRECT = 13
# PyTorch's own weight gradient of a depthwise convolution divides integers for each product: about 70 instructions.
# That is 4 times as long as its forward pass, between the 3 times of pytorch/pytorch#40801 (V100, 3D) and the 14 of
# pytorch/pytorch#18631 (A100).
DEPTHWISE_WEIGHT = 4
# For 16-bit depthwise convolutions PyTorch calls cuDNN: the largest gain, of 5 x 5, in pytorch/pytorch#58749.
DEPTHWISE_16_BIT = 6
# 16-bit convolutions reach half of the peak: 58 and 65 of a V100's 125 TFLOP/s, in kernels that write channels first
# again (nvprof in tensorflow/tensorflow#15897), and 40 to 55 % on an H200, in kernels that do not (data/traces/h200).
# All products on a GeForce's tensor cores reach the peak (`is_geforce`), which its data sheet gives for a low clock.
HALF_PRECISION = 1.5
# The sums of a weight's gradient, over all pixels, and of a matrix product are divided into parts of at least so many
# terms, which fill the GPU: an assumption.
TERMS = 1024
# How many times as fast the L2 cache is: typical. Measured on a V100: 2155 GB/s. Source: Jia et al.: "Dissecting the
# NVIDIA Volta GPU architecture via microbenchmarking", 2018.
CACHE_RATE = 3


class Part(NamedTuple):
    """A kernel's name, its FLOPs, the bytes that it reads and writes, and the type in which it multiplies."""

    name: str
    flops: float
    bytes_moved: float
    arithmetic: str = "float32"


NO_KERNEL = {f"aten::{name}" for name in ("empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided")}
NO_KERNEL.add("aten::_unsafe_view")

# The operators that launch several kernels, or a copy: the names of the kernels, and the bytes of each as a
# share of `bytes_moved`. Let x be the size of a picture. Batch norm (which instance norm consists of) counts as moving
# 2x, but reads its input twice; its backward pass counts as moving 3x, but reads two of these twice.
PARTS: dict[str, dict[str, float]] = {
    "aten::native_batch_norm": {
        "batch_norm_collect_statistics": 2.4 / 2,  # CALIBRATED: it reads x, at 1 / 2.4 of the memory's rate
        "batch_norm_inverse_deviation": 0,
        "batch_norm_transform_input": 1,
    },
    EVAL_BATCH_NORM: {"copy_": 0, "batch_norm_inverse_deviation": 0, "batch_norm_transform_input": 1},
    "aten::native_batch_norm_backward": {"batch_norm_backward": 5 / 3},
    "aten::cudnn_batch_norm": {"batch_norm": 2.4 / 2 + 1},
    EVAL_BATCH_NORM.replace("native", "cudnn"): {"batch_norm": 1},
    "aten::cudnn_batch_norm_backward": {"batch_norm_backward": 5 / 3},
    # Those of `nhwc` count as moving 2x and 4x: one reads x, one reads it again and writes; on the way back two kernels
    # read two pictures and write one. (With a skip, x / 2 is counted too often.) They read whole pixels, so we assume
    # the rate of pointwise kernels, which no GPU has confirmed. `nhwc_pack` and the like are one kernel each: no row.
    "labkit::nhwc_norm": {"nhwc_moments": 1 / 2, "nhwc_norm": 1},
    "labkit::nhwc_norm_backward": {"nhwc_gradient_sums": 3 / 4, "nhwc_norm_backward": 3 / 4},
    "aten::reflection_pad2d": {"reflection_pad2d": 1.8},  # CALIBRATED: at 1 / 1.8 of the memory's rate, both ways
    "aten::reflection_pad2d_backward": {"fill": 1 / 3, "reflection_pad2d_backward": 1.8 * 2 / 3},
    "aten::copy_": {"Memcpy DtoD (Device -> Device)": 1},
    "aten::clone": {"Memcpy DtoD (Device -> Device)": 1},
    UPLOAD: {"Memcpy HtoD (Pinned -> Device)": 1},
}

# These kernels read numbers one by one, so those of 16 bits take as long as those of 32: in pytorch/pytorch#54324,
# batch norm took 2.7 times as long as the activations after it. So do conversions, 1.8 times as long as their bytes
# would, in tensorflow/tensorflow#15897.
ONE_BY_ONE = ("aten::native_batch_norm", EVAL_BATCH_NORM, "aten::reflection_pad2d")

# One launch of an operator on lists of tensors takes at most this many tensors, by the number of its lists, and at most
# 320 blocks of 65536 elements. Source: PyTorch, aten/src/ATen/native/cuda/MultiTensorApply.cuh.
FOREACH_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36}
FOREACH_ELEMENTS = 320 * 65536


class Kernel(NamedTuple):
    """A kernel of a step: its duration in microseconds, and its operator's place in the list of operators."""

    name: str
    us: float
    operator: int


def kernels(operators: Sequence[Operator], roofline: Roofline) -> list[Kernel]:
    """The kernels that the operators launch, in their order.

    Raises:
        LabkitError: the device of the roofline cannot compute in the type of a convolution.
    """
    found = []
    for place, operator in enumerate(operators):
        for part in parts_of(operator, roofline):
            us = roofline.microseconds(part.flops, part.bytes_moved, part.arithmetic)
            if operator.name == UPLOAD:  # whose bytes count twice, once read and once written
                us = roofline.least_us + 1e6 * part.bytes_moved / 2 / (roofline.host_bytes_per_s * roofline.bytes_share)
            found.append(Kernel(part.name, us, place))
    return found


def parts_of(operator: Operator, roofline: Roofline = ROOFLINES["A100"]) -> list[Part]:
    """The kernels that an operator launches on a GPU: most launch one, views none."""
    short = operator.name.removeprefix("aten::")
    if operator.is_view or operator.name in NO_KERNEL:
        return []
    if operator.name in PARTS:
        return known_parts(operator)
    if short in ("convolution", "convolution_backward"):
        return convolution_parts(operator, roofline)
    if short.startswith(("_foreach", "_fused_adam", "_amp_foreach")):
        launches = foreach_launches(operator)
        return [Part(f"multi_tensor_apply {short}", 0.0, operator.bytes_moved / launches)] * launches
    if not operator.flops:
        return [Part(short, 0.0, from_memory(operator, roofline))]
    *products, rows, columns = operator.outputs[0][-3:]
    terms = operator.flops // (2 * math.prod(operator.outputs[0]))
    busy_share = roofline.busy_share(rows, columns, math.prod(products) * max(1, terms // TERMS))
    arithmetic = roofline.arithmetic(operator.dtype, is_convolution=False)
    return [Part(short, operator.flops / busy_share, operator.bytes_moved, arithmetic)]


def known_parts(operator: Operator) -> list[Part]:
    """The kernels that `PARTS` has for an operator. cuDNN's batch norm, of float32 with weights, is a single one."""
    shares, moved = PARTS[operator.name], float(operator.bytes_moved)
    if operator.name.startswith(ONE_BY_ONE):
        moved *= max(1, 4 / getattr(torch, operator.dtype).itemsize)
    if "batch_norm_transform_input" in shares and operator.dtype == "float32" and len(operator.inputs) > 1:
        return [Part("batch_norm", 0.0, sum(shares.values()) * moved)]
    return [Part(name, 0.0, share * moved) for name, share in shares.items()]


def from_memory(operator: Operator, roofline: Roofline) -> float:
    """The bytes that it moves, those in the L2 cache divided by `CACHE_RATE`: what it writes, and has used just before.

    An operator on tensors that do not fit into the cache moves all of them from and to the memory.
    """
    if operator.bytes_moved > roofline.cache_bytes:
        return operator.bytes_moved
    missed = sum(size for size, since in operator.reused if since + size > roofline.cache_bytes)
    return missed + (operator.bytes_moved - missed) / CACHE_RATE


class ConvolutionShapes(NamedTuple):
    """The shapes of a convolution, or of its gradients: (B, C, H, W), and the weight's (out, in a group, H, W)."""

    pictures: Shape
    weight: Shape
    results: Shape

    @property
    def groups(self) -> int:
        """How many groups its channels have, also if it is transposed."""
        return max(1, self.pictures[1] * self.results[1] // (self.weight[0] * self.weight[1]))

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is by itself. PyTorch computes these without tensor cores or tiles."""
        return self.groups > 1 and self.weight[1] == 1

    @property
    def takes_winograd(self) -> bool:
        """Whether it is one of 3 x 3 with stride 1 and no groups.

        The shapes do not tell the stride: with 1, a picture loses at most two pixels each way.
        """
        lost = [before - after for before, after in zip(self.pictures[2:], self.results[2:], strict=True)]
        stride_1 = all(0 <= pixels <= 2 for pixels in lost) and min(self.results[2:]) > 3
        return self.weight[2:] == (3, 3) and self.groups == 1 and stride_1

    def busy_share(self, output: Shape, roofline: Roofline) -> tuple[float, int]:
        """The `Roofline.busy_share` of computing one of its shapes, and the parts into which its sums are divided."""
        rows, columns, sums = output[0] * math.prod(output[2:]), output[1] // self.groups, 1
        if output is self.weight:
            pixels = self.results[0] * min(math.prod(self.results[2:]), math.prod(self.pictures[2:]))
            rows, columns, sums = output[0] // self.groups, math.prod(output[1:]), max(1, pixels // TERMS)
        return roofline.busy_share(rows, columns, self.groups * sums), sums


def convolution_parts(operator: Operator, roofline: Roofline) -> list[Part]:
    """The kernels of a convolution, or of its gradients: those of the input, of the weight and of the bias."""
    itemsize = getattr(torch, operator.dtype).itemsize
    bias: list[Part] = []
    if operator.name == "aten::convolution":
        shapes = ConvolutionShapes(operator.inputs[0], operator.inputs[1], operator.outputs[0])
        products = {"convolution": shapes.results}
        if len(operator.inputs) == 3:
            bias = [Part("add_bias", 0.0, 2 * itemsize * math.prod(shapes.results))]
    else:
        results, pictures, weight = operator.inputs[:3]
        shapes = ConvolutionShapes(pictures, weight, results)
        products = {"convolution grad_input": pictures, "convolution grad_weight": weight}
        products = {name: output for name, output in products.items() if output in operator.outputs}
        if any(len(shape) == 1 for shape in operator.outputs):
            summed = Part("convolution grad_bias", 0.0, itemsize * math.prod(results))
            bias = [Part("Memset (Device)", 0.0, 0.0), summed]  # it counts the blocks that are done
    flops = operator.flops / max(1, len(products))
    on_tensor_cores = roofline.arithmetic(operator.dtype, is_convolution=True) != "float32"
    parts = []
    for name, output in products.items():
        if shapes.is_depthwise:
            slower = 1 / DEPTHWISE_16_BIT if itemsize < 4 else DEPTHWISE_WEIGHT if output is shapes.weight else 1
            parts.append(Part(name, slower * DIRECT * flops, itemsize * sum(map(math.prod, shapes))))
        elif on_tensor_cores:
            parts += parts_on_tensor_cores(name, shapes, output, flops, operator, roofline)
        else:
            parts += parts_without(name, shapes, output, flops, roofline)
    return parts + bias


def parts_on_tensor_cores(
    name: str, shapes: ConvolutionShapes, output: Shape, flops: float, operator: Operator, roofline: Roofline
) -> list[Part]:
    """The kernels that compute a convolution's `output` from the two other shapes, with conversions of the layout.

    A float32 result is still in the cache for the most part when it is converted back, so only its writing counts
    (CALIBRATED). Of a weight's gradient the tables show no conversion back. Tensor cores read 16 bytes of a pixel's
    channels at a time.
    """
    itemsize, channels_last = getattr(torch, operator.dtype).itemsize, operator.channels_last
    channels = (shapes.results if output is shapes.pictures else shapes.pictures)[1] // shapes.groups
    flops *= math.ceil(channels * itemsize / 16) * 16 / (channels * itemsize)
    if itemsize < 4 and not roofline.is_geforce:
        flops *= HALF_PRECISION
    busy_share, sums = shapes.busy_share(output, roofline)
    moved = itemsize * sum(map(math.prod, shapes))
    arithmetic = roofline.arithmetic(operator.dtype, is_convolution=True)
    converted = [shape for shape in shapes if shape is not output and shape not in channels_last]
    before = [Part("nchwToNhwcKernel", 0.0, 2 * 4 * math.prod(shape)) for shape in converted]  # as slow in 16 bits
    after = []
    if sums > 1:
        after.append(Part("splitKreduce_kernel", 0.0, 4 * (sums + 1) * math.prod(output)))
    if itemsize == 4 and output is not shapes.weight and not channels_last:
        after.append(Part("nhwcToNchwKernel", 0.0, itemsize * math.prod(output)))
    return [*before, Part(name, flops / busy_share, moved, arithmetic), *after]


def parts_without(name: str, shapes: ConvolutionShapes, output: Shape, flops: float, roofline: Roofline) -> list[Part]:
    """The kernel that computes a convolution's `output` without tensor cores: in tiles or directly, as is faster."""
    busy_share, _ = shapes.busy_share(output, roofline)
    tiled = flops / busy_share / (WINOGRAD if shapes.takes_winograd else 1)
    return [Part(name, min(tiled, DIRECT * flops), 4 * sum(map(math.prod, shapes)))]


def foreach_launches(operator: Operator) -> int:
    """The number of launches that an operator on lists needs for all its tensors."""
    tensors = len(operator.outputs)
    lists = min(max(1, len(operator.inputs) // tensors), max(FOREACH_TENSORS))
    elements = sum(math.prod(shape) for shape in operator.outputs)
    return max(math.ceil(tensors / FOREACH_TENSORS[lists]), math.ceil(elements / FOREACH_ELEMENTS))
