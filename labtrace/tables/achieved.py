"""The FLOP/s and bytes/s that convolutions, matrix products and normalisation achieved, by operator and shapes.

A trace that was recorded with `record_shapes=True` holds the shapes of inputs, but not those of outputs. The output of
a convolution follows from its stride and padding (PyTorch records them since 2.1, as "Concrete Inputs"), or else from
the gradient that its backward pass gets, if all backward passes of these shapes agree. Otherwise its work is unknown.

FLOPs are counted as in `torch.utils.flop_counter`; a grouped convolution counts only the FLOPs that it needs. An
algorithm with fewer multiplications, such as Winograd's, can therefore achieve more than the peak. Bytes are the least
that has to be moved: every input is read and every output written once.

The peaks are those of `labtrace.tables.peaks`. The peak of float32 is TF32's where an operator launched kernels that
have TF32 in their names.
"""

from __future__ import annotations

import ast
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas

from labtrace.errors import TraceError
from labtrace.events.intervals import innermost
from labtrace.events.rank import Rank
from labtrace.tables.operators import times
from labtrace.tables.peaks import peaks_of

Shape = tuple[int, ...]

DTYPES = {  # PyTorch's name and the bytes of a number, by the name in a trace, as C++ has it
    "float": ("float32", 4),
    "double": ("float64", 8),
    "c10::Half": ("float16", 2),
    "c10::BFloat16": ("bfloat16", 2),
    "bool": ("bool", 1),
    "unsigned char": ("uint8", 1),
    "int": ("int32", 4),
    "long": ("int64", 8),
    "long int": ("int64", 8),
}
# Convolutions, and the places of stride, padding, dilation and output padding among their arguments; -1 for none.
FORWARD = {
    "aten::cudnn_convolution": (3, 2, 4, -1),
    "aten::miopen_convolution": (4, 3, 5, -1),
    "aten::mkldnn_convolution": (4, 3, 5, -1),
    "aten::_slow_conv2d_forward": (4, 5, -1, -1),
    "aten::_conv_depthwise2d": (4, 5, 6, -1),
    "aten::cudnn_convolution_transpose": (4, 2, 5, 3),
    "aten::miopen_convolution_transpose": (5, 3, 6, 4),
}
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
NORMS = tuple(  # the first input of each is as large as its output
    f"aten::{name}{way}"
    for name in ("cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm", "native_layer_norm", "native_group_norm")
    for way in ("", "_backward")
)
BACKWARD = "aten::convolution_backward"
OLD_BACKWARD = "aten::cudnn_convolution_backward"  # until PyTorch 1.10: calls the next two, which launch its kernels
COUNTED = (*FORWARD, *PRODUCTS, *NORMS, BACKWARD)  # operators that do the work on a CPU themselves
OF_INPUT, OF_WEIGHT = f"{OLD_BACKWARD}_input", f"{OLD_BACKWARD}_weight"


class Inputs(NamedTuple):
    """The arguments of a call, as the trace has them: () for a scalar or list, None for a value not recorded."""

    dims: tuple[Shape, ...]
    types: tuple[str, ...]
    values: tuple[Any, ...]


class Work(NamedTuple):
    """FLOPs and bytes of a call, NaN if they are not known."""

    flops: float
    bytes_moved: float


TF32 = r"tf32|tfloat32|s1688"  # in the names of its kernels
ONE_KIND = ["name", "inputs", "caller"]  # calls that agree in these do the same work
UNKNOWN = Work(math.nan, math.nan)


def achieved(rank: Rank) -> pandas.DataFrame:
    """The table that `labtrace.Trace.achieved` explains.

    Raises:
        TraceError: the work of the GPU is missing, or no shapes are in the trace.
    """
    if not rank.on_cpu:
        rank.check_gpu()
    host, read, outputs = _calls(rank)
    if host.empty:
        raise TraceError(
            f"{rank.recording.file}: no shapes of convolutions, matrix products or normalisation in this trace "
            '("Input Dims"). Record with torch.profiler.profile(record_shapes=True), or labkit.record(shapes=True).'
        )
    took = "own" if rank.on_cpu else "own_gpu"
    working = host["name"].isin(COUNTED) if rank.on_cpu else host["own_gpu"] > 0  # not operators that only call others
    worked = host[working].groupby(ONE_KIND).agg(count=("count", "sum"), us=(took, "sum"), tf32=("tf32_us", "sum"))
    rows = []
    for (name, place, caller), count, us, tf32_us in worked.itertuples(name=None):
        inputs = read[place]
        work = work_of(name, inputs, read[caller] if caller >= 0 else None, outputs)
        rows.append((name, _shapes(inputs), _dtype_name(inputs), count, us, work.flops, work.bytes_moved, tf32_us))
    columns = ["name", "inputs", "dtype", "count", "us", "flops", "bytes", "tf32_us"]
    table = pandas.DataFrame(rows, columns=columns).astype({"flops": float, "bytes": float, "count": int})
    by = ["name", "inputs", "dtype", "flops", "bytes"]
    table = table.groupby(by, dropna=False, as_index=False)[["count", "us", "tf32_us"]].sum()[columns]
    seconds = table["us"] / 1e6 / table["count"]
    table["tflop_per_s"] = table["flops"].replace(0.0, np.nan) / seconds / 1e12
    table["gb_per_s"] = table["bytes"] / seconds / 1e9
    flops_per_s, bytes_per_s = peaks_of(rank.recording.device) or ({}, np.nan)
    in_tf32 = (table["dtype"] == "float32") & (table.pop("tf32_us") > 0)
    peak = table["dtype"].mask(in_tf32, "tfloat32").map(flops_per_s).astype(float)
    table["share_of_peak"] = 1e12 * table["tflop_per_s"] / peak
    table["share_of_memory_peak"] = 1e9 * table["gb_per_s"] / bytes_per_s
    return table.sort_values("us", ascending=False, ignore_index=True)


def _calls(rank: Rank) -> tuple[pandas.DataFrame, list[Inputs], dict[tuple[Shape, Shape], Shape]]:
    """The operators with known shapes, all inputs, and outputs as `work_of` takes them.

    The operators also have the columns `caller`, and `tf32_us` of their kernels in TF32.
    """
    host = times(rank)
    host = host.assign(tf32_us=times(rank, TF32)["own_gpu"])[host["inputs"] >= 0]
    read = [_inputs(text) for text in rank.recording.inputs]
    outputs = _outputs(zip(host["name"], host["inputs"], strict=True), read)
    callers = host[host["name"] == OLD_BACKWARD].reset_index(drop=True)
    host["caller"] = np.append(callers["inputs"].to_numpy(), -1)[innermost(callers, host["begin"])]
    return host, read, outputs


def _inputs(text: str) -> Inputs:
    dims, types, values = json.loads(text)
    read = tuple(_value(value) for value in values or [])
    shapes = tuple(_shape(shape) for shape in dims or [])
    return Inputs(shapes, tuple(map(str, types or [])), read + (None,) * (len(shapes) - len(read)))


def _shapes(inputs: Inputs) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in inputs.dims if shape)


def shapes_of(text: str) -> str:
    """The shapes in one of `Recording.inputs`, such as "4x3x256x256, 64x3x7x7"."""
    return _shapes(_inputs(text))


def _shape(dims: Any) -> Shape:
    """A tensor's shape, or () for anything else, such as a list of tensors."""
    whole = isinstance(dims, list) and all(isinstance(size, int) for size in dims)
    return tuple(dims) if whole else ()


def _value(text: Any) -> Any:
    """The value of a text such as "[1, 1]" or "False", or None for a text that holds none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return None


def _outputs(calls: Iterable[tuple[str, int]], read: Sequence[Inputs]) -> dict[tuple[Shape, Shape], Shape]:
    """The outputs of convolutions, by picture and weight, as far as the backward passes agree on them."""
    found: dict[tuple[Shape, Shape], set[Shape]] = defaultdict(set)
    for name, place in set(calls):
        dims = read[place].dims
        if name == BACKWARD:
            found[dims[1], dims[2]].add(dims[0])
        elif name == OLD_BACKWARD:
            found[dims[0], dims[2]].add(dims[1])
    return {shapes: next(iter(those)) for shapes, those in found.items() if len(those) == 1}


def work_of(name: str, inputs: Inputs, caller: Inputs | None, outputs: Mapping[tuple[Shape, Shape], Shape]) -> Work:
    """The work of one call.

    Args:
        name, inputs: of the operator.
        caller: the inputs of the `OLD_BACKWARD` that called it.
        outputs: of convolutions whose stride and padding the trace does not tell, by the shapes of picture and weight.
    """
    dims, values = inputs.dims, inputs.values
    if name in PRODUCTS:
        left, right = [shape for shape in dims[:3] if len(shape) > 1][-2:]
        result = (*left[:-1], right[-1])
        return Work(2 * math.prod(result) * left[-1], _bytes(inputs, [result]))
    if name in NORMS:
        return Work(0.0, _bytes(inputs, dims[:1]))
    if name in FORWARD:
        output = _output(name, inputs) or outputs.get((dims[0], dims[1]))
        summed = dims[0] if name.endswith("transpose") else output
        return Work(_flops(summed, dims[1]), _bytes(inputs, [output])) if output and summed else UNKNOWN
    if name in (OF_INPUT, OF_WEIGHT) and caller is not None:
        picture, output, weight = caller.dims[:3]
        return Work(_flops(output, weight), _bytes(inputs, [picture if name == OF_INPUT else weight]))
    if name == BACKWARD and None not in (values[7], values[10]):
        output, picture, weight = dims[:3]
        written = [shape for shape, asked in zip((picture, weight), values[10], strict=False) if asked]
        return Work(len(written) * _flops(picture if values[7] else output, weight), _bytes(inputs, written))
    return UNKNOWN


def _flops(summed: Shape, weight: Shape) -> int:
    """Of a convolution whose filters are applied at each pixel of (B, C, ...), the output or, transposed, the input."""
    return 2 * summed[0] * math.prod(summed[2:]) * math.prod(weight)


def _output(name: str, inputs: Inputs) -> Shape | None:
    """The shape of a convolution's output by its stride, padding and so on, or None if they are not in the trace."""
    used = [inputs.values[place] if 0 <= place < len(inputs.values) else None for place in FORWARD[name]]
    if used[0] is None or used[1] is None:
        return None
    stride, padding, dilation, more = used[0], used[1], used[2] or [1] * len(used[0]), used[3] or [0] * len(used[0])
    picture, weight = inputs.dims[:2]
    sides = list(zip(picture[2:], weight[2:], stride, padding, dilation, more, strict=True))
    if name.endswith("transpose"):
        groups = inputs.values[FORWARD[name][2] + 1] or 1
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, k, s, p, d, m in sides]
        return (picture[0], weight[1] * groups, *sizes)
    return (picture[0], weight[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in sides))


def _bytes(inputs: Inputs, written: Sequence[Shape]) -> float:
    """The bytes of the tensors read and written, where a written tensor has the type of the first one read."""
    types = [
        DTYPES.get(kind, ("", math.nan))[1] if shape else 0
        for kind, shape in zip(inputs.types, inputs.dims, strict=False)
    ]
    read = sum(math.prod(shape) * size for shape, size in zip(inputs.dims, types, strict=False) if shape)
    return read + sum(map(math.prod, written)) * next(filter(None, types), math.nan)


def _dtype_name(inputs: Inputs) -> str:
    """The type of the first tensor, in PyTorch's words where it is known."""
    first = next((kind for kind, shape in zip(inputs.types, inputs.dims, strict=False) if shape), "")
    return DTYPES.get(first, (first, 0))[0]
