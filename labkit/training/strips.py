"""A picture too large for the memory, translated in strips, with the same result as the whole picture at once.

Each layer's output is computed a strip of rows at a time, as wide as the picture. A strip reads the rows beyond its
edges that its convolutions see, so strips meet without a seam. Instance norm measures mean and variance over all
strips, and so over the whole picture. Outputs are kept in the host's memory where the picture has been made small, and
every few convolutions; the others are computed again whenever they are needed, which costs little time and saves most
of the memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from labkit.devices import free_memory
from labkit.errors import LabkitError

KEEP_BELOW = 1 / 4  # outputs of at most this share of the picture's height are kept in memory
KEEP_AFTER = 3  # convolutions and sums in a row after which an output is kept in any case

# Layers and functions whose result at a pixel depends on this pixel alone, so that strips need nothing more.
LAYERS = (
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.Sigmoid),
    *(nn.Identity, nn.Dropout, nn.Dropout2d, nn.ChannelShuffle, nn.BatchNorm2d),
)
FUNCTIONS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.tanh, torch.sigmoid, torch.relu, F.relu, F.leaky_relu, F.silu),
)
METHODS = ("add", "sub", "mul", "div", "square", "sqrt", "abs", "tanh", "sigmoid", "relu", "clamp")


class UnknownLayer(LabkitError):
    """A network contains something that this file cannot compute in strips."""


@dataclass
class Rows:
    """A layer's output, (1, C, height, W), that is computed when somebody takes rows of it.

    Attributes:
        height: its number of rows.
        take: the rows from `first` to `last` - 1 on the network's device, in a tensor that the caller may change.
        depth: how many convolutions, and sums of two outputs, taking rows sets off.
    """

    height: int
    take: Callable[[int, int], Tensor]
    depth: int = 0

    def strips(self, number: int) -> Iterator[Tensor]:
        """All rows, in `number` strips of nearly equal height, one after the other."""
        edges = [self.height * i // number for i in range(number + 1)]
        return (self.take(first, last) for first, last in zip(edges, edges[1:], strict=False) if last > first)


@torch.no_grad()
def in_strips(network: nn.Module, picture: Tensor, strips: int) -> Tensor:
    """Translates (1, 3, H, W), of a size that the network takes, in `strips` strips: ``float32``, on the CPU.

    Works in evaluation mode, and leaves the network in the mode it was in.

    Raises:
        UnknownLayer: the network does more than this file can compute in strips; `can_follow` tells beforehand.
        LabkitError: the host's memory does not suffice either.
    """
    weight = next(network.parameters())
    was_training = network.training
    network.eval()
    try:
        traced = fx.symbolic_trace(network)
        stored = _stored(picture.to(weight.dtype), weight.device)
        output = _InStrips(traced, picture.shape[2], strips).run(stored)
        return torch.cat([strip.float().cpu() for strip in output.strips(strips)], dim=2)
    finally:
        network.train(was_training)


def can_follow(network: nn.Module, small: Tensor) -> bool:
    """Whether the network can be computed in strips: tried on a small picture, (1, 3, H, W), against the whole."""
    try:
        parts = in_strips(network, small, 3)
    except Exception:  # the code of any network runs here, on stand-ins for tensors: it may raise anything
        return False
    was_training = network.training
    with torch.no_grad():
        whole = network.eval()(small.to(next(network.parameters()))).float().cpu()
    network.train(was_training)
    return parts.shape == whole.shape and bool((parts - whole).abs().max() < 1 / 127.5)


class _InStrips(fx.Interpreter):
    """Runs a traced network on `Rows` instead of tensors."""

    def __init__(self, traced: fx.GraphModule, height: int, strips: int):
        super().__init__(traced)
        self.extra_traceback = False  # it would add the name of a node to our errors
        self.keep_below, self.number = height * KEEP_BELOW, strips
        self.device = next(traced.parameters()).device

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Rows):
            if result.depth and (result.height <= self.keep_below or result.depth >= KEEP_AFTER):
                result = _kept(result, self.number, self.device)
            if n.op == "call_module" and getattr(self.fetch_attr(str(n.target)), "inplace", False):
                # A later reader of the input sees it changed, as in a U-Net's skips.
                self.env[n.all_input_nodes[0]] = result
        return result

    def call_module(self, target: Any, args: tuple, kwargs: dict) -> Any:
        layer = self.fetch_attr(target)
        if not isinstance(args[0], Rows):
            return layer(*args, **kwargs)
        if isinstance(layer, nn.InstanceNorm2d) and not layer.track_running_stats:
            return _normalised(layer, args[0], self.number)
        if isinstance(layer, nn.AdaptiveAvgPool2d) and layer.output_size in (1, (1, 1)):
            return _mean(args[0], (2, 3), self.number)
        if isinstance(layer, nn.ReflectionPad2d):
            return _padded(layer, args[0])
        if isinstance(layer, nn.Conv2d):
            return _convolved(layer, args[0])
        if isinstance(layer, nn.ConvTranspose2d):
            return _transposed(layer, args[0])
        if isinstance(layer, LAYERS):
            return Rows(args[0].height, lambda first, last: layer(args[0].take(first, last)), args[0].depth)
        raise UnknownLayer(f"{target}: strips cannot compute {layer}.")

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if target is torch.cat and kwargs.get("dim", args[-1]) == 1:
            return _pointwise(lambda *tensors: torch.cat(tensors, 1), args[0], {})
        if not any(isinstance(arg, Rows) for arg in args):
            return target(*args, **kwargs)
        if target in FUNCTIONS:
            return _pointwise(target, args, kwargs)
        raise UnknownLayer(f"strips cannot compute {target}.")

    def call_method(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if not any(isinstance(arg, Rows) for arg in args):
            return super().call_method(target, args, kwargs)
        if target == "mean":
            dims = kwargs.get("dim", args[1] if len(args) > 1 else ())
            if 2 in dims and kwargs.get("keepdim"):
                return _mean(args[0], dims, self.number)
        if target in METHODS:
            return _pointwise(lambda first, *rest, **more: getattr(first, target)(*rest, **more), args, kwargs)
        raise UnknownLayer(f"strips cannot compute {target}.")


def _stored(output: Tensor, device: torch.device) -> Rows:
    """Rows of a tensor in the host's memory."""
    return Rows(output.shape[2], lambda first, last: output[:, :, first:last].to(device, copy=True))


def _kept(rows: Rows, number: int, device: torch.device) -> Rows:
    """The same rows, computed now and kept in the host's memory."""
    whole, done = torch.empty(0), 0
    for strip in rows.strips(number):
        if not done:
            shape = (*strip.shape[:2], rows.height, strip.shape[3])
            _check_memory(strip.element_size() * torch.Size(shape).numel())
            whole = torch.empty(shape, dtype=strip.dtype)
        whole[:, :, done : done + strip.shape[2]] = strip
        done += strip.shape[2]
    return _stored(whole, device)


def _check_memory(needed: int) -> None:
    free = free_memory("cpu")
    if needed > free:
        raise LabkitError(
            f"the picture needs {needed / 1e9:.1f} GB for a layer's output, even in strips, and {free / 1e9:.1f} GB "
            "of memory are free. Translate it at a smaller size (--size, or size=...), or where there is more memory."
        )


def _pointwise(function: Callable, args: tuple | list, kwargs: dict) -> Rows:
    """A function of each pixel; of its arguments some are rows, others tensors of one number for each channel."""
    rows = [arg for arg in args if isinstance(arg, Rows)]
    heights = {arg.height for arg in rows}
    if len(heights) != 1:
        raise UnknownLayer(f"strips cannot compute {function} of outputs with {sorted(heights)} rows.")
    depth = sum(arg.depth for arg in rows) + len(rows) - 1  # a sum of two counts, too, or chains of them would grow

    def take(first: int, last: int) -> Tensor:
        parts = [arg.take(first, last) if isinstance(arg, Rows) else arg for arg in args]
        return function(*parts, **kwargs)

    return Rows(heights.pop(), take, depth)


def _mean(rows: Rows, dims: tuple[int, ...], number: int) -> Tensor:
    """The mean over all rows and, as `dims` says, over more dimensions, which stay with length 1."""
    parts = [strip.double().mean(dims, keepdim=True) * strip.shape[2] for strip in rows.strips(number)]
    return (torch.stack(parts).sum(0) / rows.height).to(rows.take(0, 1).dtype)


def _normalised(layer: nn.InstanceNorm2d, rows: Rows, number: int) -> Rows:
    """Instance norm with mean and variance of the whole picture, gathered from strips (Chan et al. 1979, eq. 2.1)."""
    count, mean, squares = 0, torch.zeros(()), torch.zeros(())
    for strip in rows.strips(number):
        more = strip.shape[2] * strip.shape[3]
        var, middle = (moment.double() for moment in torch.var_mean(strip, (2, 3), correction=0, keepdim=True))
        mean, squares = mean.to(middle), squares.to(middle)
        apart = middle - mean
        mean = mean + apart * more / (count + more)
        squares = squares + var * more + apart**2 * (count * more / (count + more))
        count += more
    scale = (squares / count + layer.eps).rsqrt()
    if layer.affine:
        scale = scale * layer.weight[:, None, None]
    shift = -mean * scale + (layer.bias[:, None, None] if layer.affine else 0)

    def take(first: int, last: int) -> Tensor:
        strip = rows.take(first, last)
        return torch.addcmul(shift.to(strip), strip, scale.to(strip))

    return Rows(rows.height, take, rows.depth)


def _padded(layer: nn.ReflectionPad2d, rows: Rows) -> Rows:
    left, right, top, bottom = layer.padding
    end = 2 * (rows.height - 1)

    def take(first: int, last: int) -> Tensor:
        index = torch.arange(first - top, last - top).abs()
        index = torch.minimum(index, end - index)  # beyond the last row, back again
        low, high = int(index.min()), int(index.max()) + 1
        strip = rows.take(low, high)
        if high - low != len(index) or index[0] != low:
            strip = strip[:, :, (index - low).to(strip.device)]
        return F.pad(strip, (left, right, 0, 0), mode="reflect")

    return Rows(rows.height + top + bottom, take, rows.depth)


def _convolved(layer: nn.Conv2d, rows: Rows) -> Rows:
    stride, reach, (above, beside) = layer.stride[0], layer.dilation[0] * (layer.kernel_size[0] - 1), _zeros(layer)

    def take(first: int, last: int) -> Tensor:
        low, high = first * stride - above, (last - 1) * stride - above + reach + 1
        strip = rows.take(max(low, 0), min(high, rows.height))
        if low < 0 or high > rows.height:  # F.pad copies even where there is nothing to add
            strip = F.pad(strip, (0, 0, max(-low, 0), max(high - rows.height, 0)))
        return F.conv2d(strip, layer.weight, layer.bias, layer.stride, (0, beside), layer.dilation, layer.groups)

    return Rows((rows.height + 2 * above - reach - 1) // stride + 1, take, rows.depth + 1)


def _transposed(layer: nn.ConvTranspose2d, rows: Rows) -> Rows:
    stride, reach, (above, beside) = layer.stride[0], layer.dilation[0] * (layer.kernel_size[0] - 1), _zeros(layer)
    more, settings = layer.output_padding, (layer.groups, layer.dilation)

    def take(first: int, last: int) -> Tensor:
        low, high = max(0, (first + above - reach) // stride), min(rows.height, (last - 1 + above) // stride + 1)
        strip = rows.take(low, high)
        strip = F.conv_transpose2d(strip, layer.weight, layer.bias, layer.stride, (0, beside), more, *settings)
        start = first + above - low * stride
        return strip[:, :, start : start + last - first]

    return Rows((rows.height - 1) * stride - 2 * above + reach + 1 + more[0], take, rows.depth + 1)


def _zeros(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[int, int]:
    """The rows and columns of zeros that a convolution adds on each side."""
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise UnknownLayer(f"strips cannot compute {layer}: only zeros as padding, given as a number.")
    above, beside = layer.padding
    return above, beside
