"""What convolutions, matrix products and normalisation achieved: FLOP/s and bytes/s, by operator and shapes.

The shapes of inputs stand in a trace that was recorded with `record_shapes=True`; those of outputs never do. A
convolution's output follows from its stride and padding (PyTorch since 2.1 records them, as "Concrete Inputs"), or else
from the gradient that its backward pass gets, if all backward passes of these shapes agree. Otherwise its work is not
known.

FLOPs are PyTorch's count (`torch.utils.flop_counter`), with labkit's correction for grouped convolutions. An algorithm
that needs fewer multiplications, such as Winograd's, can therefore achieve more than the peak. Bytes are the least that
has to be moved: every input is read and every output written once.
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas
import torch
from torch.utils.flop_counter import conv_flop_count

from labkit.measure.roofline import FLOPS, roofline_seconds
from labkit.traces.operators import times
from labkit.traces.rank import Rank, innermost
from labkit.traces.reading import TraceError

if TYPE_CHECKING:
    from labkit.simulate.cost_model import Roofline

Shape = tuple[int, ...]

DTYPES = {  # names in a trace, as C++ has them
    "float": torch.float32,
    "double": torch.float64,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
    "int": torch.int32,
    "long": torch.int64,
    "long int": torch.int64,
}
FORWARD = (
    "aten::cudnn_convolution",
    "aten::miopen_convolution",
    "aten::_slow_conv2d_forward",
    "aten::_conv_depthwise2d",
)
TRANSPOSED = ("aten::cudnn_convolution_transpose", "aten::miopen_convolution_transpose")
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
NORMS = tuple(  # the first input of each is as large as its output
    f"aten::{name}{way}"
    for name in ("cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm", "native_layer_norm", "native_group_norm")
    for way in ("", "_backward")
)
BACKWARD = "aten::convolution_backward"
OLD_BACKWARD = "aten::cudnn_convolution_backward"  # until PyTorch 1.10: calls the next two, which launch its kernels
OF_INPUT, OF_WEIGHT = f"{OLD_BACKWARD}_input", f"{OLD_BACKWARD}_weight"


class Inputs(NamedTuple):
    """The arguments of a call, as the trace has them: () stands for a scalar or list, None for a value not recorded."""

    dims: tuple[Shape, ...]
    types: tuple[str, ...]
    values: tuple[Any, ...]


class Work(NamedTuple):
    """FLOPs and bytes of a call; NaN if they are not known."""

    flops: float
    bytes_moved: float


ONE_KIND = ["name", "inputs", "caller"]  # calls that agree in these do the same work
UNKNOWN = Work(math.nan, math.nan)


def achieved(rank: Rank, roofline: Roofline | None) -> pandas.DataFrame:
    """The table that `labkit.Trace.achieved` explains.

    Raises:
        TraceError: there is no GPU activity, or no shapes are in the trace.
    """
    rank.kernels  # noqa: B018  raises if there is no GPU activity
    host, read, outputs = _calls(rank)
    if host.empty:
        raise TraceError(
            f"{rank.recording.file}: no shapes of convolutions, matrix products or normalisation in this trace "
            '("Input Dims"). Record with labkit.record(shapes=True), or torch.profiler.profile(record_shapes=True).'
        )
    launched = host[host["own_gpu"] > 0].groupby(ONE_KIND)["own_gpu"].agg(["size", "sum"])
    rows = []
    for (name, place, caller), count, us in launched.itertuples(name=None):
        inputs = read[place]
        work = work_of(name, inputs, read[caller] if caller >= 0 else None, outputs)
        shapes = ", ".join("x".join(map(str, shape)) for shape in inputs.dims if shape)
        rows.append((name, shapes, _dtype_name(inputs), count, us, work.flops, work.bytes_moved))
    columns = ["name", "inputs", "dtype", "count", "us", "flops", "bytes"]
    table = pandas.DataFrame(rows, columns=columns).astype({"flops": float, "bytes": float})
    by = ["name", "inputs", "dtype", "flops", "bytes"]
    table = table.groupby(by, dropna=False, as_index=False)[["count", "us"]].sum()[columns]
    seconds = table["us"] / 1e6 / table["count"]
    table["tflop_per_s"] = table["flops"].replace(0.0, np.nan) / seconds / 1e12
    table["gb_per_s"] = table["bytes"] / seconds / 1e9
    if roofline is not None:
        under = [_under(roofline, *each) for each in zip(table["flops"], table["bytes"], table["dtype"], strict=True)]
        table["share_of_peak"] = np.array([least for least, _ in under]) / seconds
        table["limit"] = [limit for _, limit in under]
    return table.sort_values("us", ascending=False, ignore_index=True)


def _calls(rank: Rank) -> tuple[pandas.DataFrame, list[Inputs], dict[tuple[Shape, Shape], Shape]]:
    """The operators with known shapes, with the column `caller`; all inputs; and outputs as `work_of` takes them."""
    host = times(rank)
    host = host[host["inputs"] >= 0].copy()
    read = [_inputs(text) for text in rank.recording.inputs]
    outputs = _outputs(zip(host["name"], host["inputs"], strict=True), read)
    callers = host[host["name"] == OLD_BACKWARD].reset_index(drop=True)
    host["caller"] = np.append(callers["inputs"].to_numpy(), -1)[innermost(callers, host["begin"])]
    return host, read, outputs


def _inputs(text: str) -> Inputs:
    dims, types, values = ast.literal_eval(text)
    read = tuple(_value(value) for value in values or [])
    shapes = tuple(_shape(shape) for shape in dims or [])
    return Inputs(shapes, tuple(map(str, types or [])), read + (None,) * (len(shapes) - len(read)))


def _shape(dims: Any) -> Shape:
    """A tensor's shape; () for anything else, such as a list of tensors."""
    whole = isinstance(dims, list) and all(isinstance(size, int) for size in dims)
    return tuple(dims) if whole else ()


def _value(text: Any) -> Any:
    """What "[1, 1]" or "False" says; None for a text that says nothing."""
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
        return _product(name, inputs)
    if name in NORMS:
        return Work(0.0, _bytes(inputs, dims[:1]))
    if name in FORWARD or name in TRANSPOSED:
        output = _output(name, inputs) or outputs.get((dims[0], dims[1]))
        return _convolution(inputs, dims[0], dims[1], output, output, name in TRANSPOSED)
    if name in (OF_INPUT, OF_WEIGHT) and caller is not None:
        picture, output, weight = caller.dims[:3]
        return _convolution(inputs, picture, weight, output, picture if name == OF_INPUT else weight)
    if name == BACKWARD and None not in (values[7], values[10]):
        flops = FLOPS[torch.ops.aten.convolution_backward](*dims[:3], None, *values[4:11], out_val=None)
        return Work(
            flops, _bytes(inputs, [shape for shape, asked in zip(dims[1:3], values[10], strict=False) if asked])
        )
    return UNKNOWN


def _product(name: str, inputs: Inputs) -> Work:
    formula = FLOPS[getattr(torch.ops.aten, name.removeprefix("aten::"))]
    shapes = inputs.dims[:3] if name in ("aten::addmm", "aten::baddbmm") else inputs.dims[:2]
    left, right = shapes[-2:]
    return Work(formula(*shapes, out_val=None), _bytes(inputs, [(*left[:-1], right[-1])]))


def _convolution(
    inputs: Inputs, picture: Shape, weight: Shape, output: Shape | None, written: Shape | None, transposed: bool = False
) -> Work:
    if output is None or written is None:
        return UNKNOWN
    flops = conv_flop_count(list(picture), list(weight), list(output), transposed)
    return Work(flops, _bytes(inputs, [written]))


def _output(name: str, inputs: Inputs) -> Shape | None:
    """The shape of a convolution's output by its stride, padding and so on; None if they are not in the trace."""
    operator = getattr(torch.ops.aten, name.removeprefix("aten::")).default
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, inputs.values, strict=False))
    if any(given.get(needed) is None for needed in ("stride", "padding")):
        return None
    flat = [0] * len(given["stride"])
    picture, weight = (torch.empty(shape, device="meta") for shape in inputs.dims[:2])
    settings = [given["stride"], given["padding"], given.get("dilation") or [1] * len(flat), name in TRANSPOSED]
    groups = given.get("groups") or inputs.dims[0][1] // inputs.dims[1][1]
    padded = given.get("output_padding") or flat
    return tuple(torch.ops.aten.convolution(picture, weight, None, *settings, padded, groups).shape)


def _bytes(inputs: Inputs, written: Iterable[Shape]) -> float:
    """Every input read and every output written once, the outputs in the type of the first input; NaN if unknown."""
    types = [DTYPES.get(name) for name in inputs.types]
    read = [(shape, dtype) for shape, dtype in zip(inputs.dims, types, strict=False) if shape]
    first = next((dtype for _, dtype in read if dtype), None)
    return sum(
        math.prod(shape) * (dtype.itemsize if dtype else math.nan)
        for shape, dtype in [*read, *((shape, first) for shape in written)]
    )


def _dtype_name(inputs: Inputs) -> str:
    first = next((kind for shape, kind in zip(inputs.dims, inputs.types, strict=False) if shape), "")
    return str(DTYPES[first]).removeprefix("torch.") if first in DTYPES else first


def _under(roofline: Roofline, flops: float, bytes_moved: float, dtype: str) -> tuple[float, str]:
    """The fewest seconds for this work, and which roof says so; NaN and "" if either is not known."""
    peak = roofline.flops_per_s.get(dtype, math.nan) if flops else math.inf
    seconds = roofline_seconds(flops, bytes_moved, peak, roofline.bytes_per_s)
    if math.isnan(flops / peak + bytes_moved):
        return math.nan, ""
    return seconds, "compute" if flops / peak > bytes_moved / roofline.bytes_per_s else "memory"
