"""winograd: on a processor, 3x3 convolutions by Winograd's algorithm, between pictures that stay channels last."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.variants import Substitutes, patches
from labkit.variants.cpp import can_compile, library, own_products, products, run_kernel
from labkit.variants.norms import norms
from labkit.variants.patches import pixels

# Of all pictures of a batch in a residual block: with fewer pixels, the weights' transforms take longer than is saved,
# and with fewer numbers, the calls of kernels (measured with AVX2 and AVX-512, on one thread and two, November 2026).
PIXELS, NUMBERS = 256, 1 << 15 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 1 << 14
STRIP = 128  # tiles of a thread that are transformed, multiplied and transformed back before the next ones
POINTS = {0: 1 / 4, 1: -1 / 6, -1: -1 / 6, 2: 1 / 24, -2: 1 / 24}  # and their factors in G; B and A are in winograd.cpp


class Winograd(Substitutes):
    """Computes convolutions with stride 1 by Winograd's algorithm, in C++ and float32.

    Differs from the baseline in one seam, `learn`: while it runs, kernels of winograd.cpp take the place of layers. A
    convolution of residual blocks makes 4 x 4 results from 6 x 6 pixels in 36 multiplications, a direct one in 144
    (Lavin and Gray 2016, section 4.1), and one of the discriminators' with 4x4 weights 3 x 3 results. The border is
    read where the pixels are. Strips of tiles are transformed, multiplied and transformed back while they are in the
    cache, and the way back transforms the input again, as it would be 2.25 times as large to keep. Each weight is
    transformed once in `learn`, for all passes, and products of matrices are PyTorch's or, where these are slow, our
    own (`labkit.variants.cpp.products`). Instance norm and the activation behind it are one kernel, in all networks but
    custom ones. It leaves pictures channels last, and PyTorch's own would not (pytorch#194616): so the other
    convolutions find them in the layout in which they are fastest, and nothing is laid out again between layers. Their
    weights' gradients alone would be slower so, and come from `labkit.variants.patches`. Under autocast its layers
    compute in float32. Second derivatives are refused.

    Equal to the baseline to about 1e-14 in float64. In float32 the error of a convolution is about 2e-6 of its result,
    8 to 15 times that of a direct one, since the matrices add and take away numbers larger than the result. Over 200
    steps the losses are as far from those in float64 as the baseline's own are: training amplifies any rounding.

    Improves: compute and memory traffic, on processors. Helps less where few tiles are left for the products, as with
    pictures of 64 pixels, and not in generators without such blocks. One picture of less than 64 pixels a side, or of
    that with fewer than 32 filters (16 with AVX2, 64 where products are its own), is too small to gain: it warns, and
    PyTorch's own layers compute, in float32. Compiled once, at its first use, which takes a few seconds.
    """

    name = "winograd"
    changes = "convolutions by Winograd's algorithm; instance norm and its activation are one kernel, in C++"
    improves = "compute, memory traffic"
    needs = "residual blocks; a processor, Linux and a C++ compiler, elsewhere it does nothing"
    excludes = {
        "fp16": "its layers compute in float32, outside of which bf16 is the type for a processor",
        "graph": "its kernels are for processors, which have no CUDA graphs",
        "compile": "the compiler fuses norm and activation itself, and cannot look into these kernels",
    }

    @classmethod
    def why_unsuited(cls, model: Model) -> str | None:
        weight = next(model.parameters())
        if weight.device.type == "cpu" and weight.dtype not in (torch.float32, torch.float64):
            return f"its kernels take weights in float32 or float64, and not in {weight.dtype}"
        return super().why_unsuited(model)

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        if next(model.parameters()).device.type != "cpu":
            return "its kernels are for processors"
        if not can_compile():
            return "its kernels need Linux and a C++ compiler, such as g++"
        if not any(padding for padding, _ in convolutions(model)):
            return "no network has 3x3 convolutions with stride 1 and reflected borders"
        return None

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        self.transformed: dict[Tensor, Transformed] = {}  # the weights, while a player learns
        self.own: dict[nn.Module, Any] = {}  # what layers do instead, where it pays
        if Winograd.why_inactive(self.model) is None:
            library()
            self.channels = next(convolutions(self.model))[1].in_channels
            networks = [n for name, n in self.model.named_children() if name not in self.model.custom]
            for network in networks:
                for layer in filter(patches.suits, network.modules()):
                    self.own[layer] = functools.partial(patches.convolution, layer)
                first = next(layer for layer in network.modules() if isinstance(layer, nn.ReflectionPad2d | nn.Conv2d))
                self.own[first] = functools.partial(channels_last, first)
                for norm, after, slope in norms(network):
                    self.own[norm] = functools.partial(norm_and_activation, eps=norm.eps, slope=slope)
                    if after:
                        self.own[after] = lambda x: x
                        self.together |= {norm, after}
            for padding, convolution in convolutions(self.model):
                self.own[convolution] = functools.partial(self.convolve, convolution)
                if padding:
                    self.own[padding] = lambda x: x
                    self.together |= {padding, convolution}
        return super().build(betas)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        others = self.forwards
        if self.own and self.pays(batch["real_a"]):
            self.forwards = others | self.own
        try:
            return super().learn(player, batch)
        finally:
            self.transformed.clear()
            self.forwards = others

    def pays(self, pictures: Tensor) -> bool:
        """Whether its kernels are faster than PyTorch's with these. In float64 they always run, to be compared.

        On a processor, shape and type alone decide, so that all ranks, and a run that continues, compute alike.
        """
        n, _, height, width = pictures.shape
        in_blocks = n * height * width // 16
        least = 2 * NUMBERS if own_products() else NUMBERS  # an assumption: none was at hand
        pays = pictures.dtype == torch.float64 or (in_blocks >= PIXELS and in_blocks * self.channels >= least)
        if not pays:
            warnings.warn(
                f"winograd: {n} x {height} x {width} pixels of {self.channels} channels in residual blocks are too few "
                "to gain, so it changes nothing.",
                stacklevel=2,
            )
        return pays

    def convolve(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        """The convolution of x (N, C, H, W), in float32 under autocast, too, or PyTorch's where it is too small."""
        weight = layer.weight
        if layer.padding == (1, 1) and x.dtype != torch.float64 and x[:, 0].numel() < PIXELS:
            return patches.convolution(layer, x)
        with torch.autocast("cpu", enabled=False):
            if weight not in self.transformed:
                self.transformed[weight] = Transformed(weight)
            return WinogradConvolution.apply(x.to(weight.dtype), weight, layer.bias, self.transformed[weight])


def convolutions(model: Model) -> Iterator[tuple[nn.ReflectionPad2d | None, nn.Conv2d]]:
    """The convolutions with stride 1 of the model's own networks that it computes.

    Those with 3x3 weights behind a layer, which comes first, that reflects a border of one pixel, as in residual
    blocks. Then those with 4x4 weights and a border of zeros, as in discriminators, but for the last one, whose single
    channel has nothing to gain.
    """
    usual = dict(stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros")
    reflected = usual | dict(kernel_size=(3, 3), padding=(0, 0))
    padded = usual | dict(kernel_size=(4, 4), padding=(1, 1))
    networks = [network for name, network in model.named_children() if name not in model.custom]
    layers = [layer for network in networks for layer in network.modules()]
    rows = [list(layer) for layer in layers if type(layer) is nn.Sequential]
    for padding, layer in itertools.chain(*map(itertools.pairwise, rows)):
        if type(padding) is nn.ReflectionPad2d and padding.padding == (1, 1, 1, 1) and type(layer) is nn.Conv2d:
            if reflected.items() <= vars(layer).items() and sum(row.count(padding) for row in rows) == 1:
                yield padding, layer
    for layer in layers:
        if type(layer) is nn.Conv2d and padded.items() <= vars(layer).items() and layer.out_channels > 1:
            yield None, layer


def channels_last(layer: nn.Module, x: Tensor) -> Tensor:
    """What the layer computes, of a batch (N, C, H, W) whose channels lie side by side in memory."""
    return type(layer).forward(layer, x.contiguous(memory_format=torch.channels_last))


# ---- operators for (N, C, H, W), channels last


def strips(rows: int, columns: int) -> list[tuple[int, int, int]]:
    """The tiles, the first row and the last of strips whose numbers stay in the cache from one kernel to the next."""
    high = -(-STRIP * torch.get_num_threads() // columns)
    ends = itertools.pairwise([*range(0, rows, high), rows])
    return [((end - begin) * columns, begin, end) for begin, end in ends]


def transformed(weight: Tensor) -> Tensor:
    """U = G g G^T of each filter g of a weight (K, C, 3, 3) or (K, C, 4, 4): (36, K, C)."""
    taps = weight.shape[2]
    return (twice_g(taps, weight.dtype) @ weight.reshape(-1, taps * taps).T).view(36, *weight.shape[:2])


class Transformed:
    """The transform of a weight, as the right factor of products."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()

    @functools.cached_property
    def forward(self) -> Tensor:
        """Of V (36, tiles, C): (36, C, K)."""
        return transformed(self.weight.transpose(0, 1))

    @functools.cached_property
    def backward(self) -> Tensor:
        """Of the gradient of M (36, tiles, K): (36, K, C)."""
        return transformed(self.weight)


@functools.cache
def twice_g(taps: int, dtype: torch.dtype) -> Tensor:
    """The matrix (36, taps * taps) that turns the numbers of a filter g into those of G g G^T."""
    g = [[factor * point**power for power in range(taps)] for point, factor in POINTS.items()]
    g.append([0] * (taps - 1) + [1])
    return torch.kron(*[torch.tensor(g, dtype=torch.float64)] * 2).to(dtype)


class WinogradConvolution(torch.autograd.Function):
    """A convolution of x (N, C, H, W) with weights, and these transformed: those of `convolutions`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, u: Transformed) -> Tensor:
        x = pixels(x)
        n, height, width, channels = x.shape
        results = ctx.results = 7 - weight.shape[2]  # of a tile, high and wide
        high, wide = height + results - 4, width + results - 4
        ctx.strips = strips(n * -(-high // results), -(-wide // results))
        # no view of another tensor, as a ReLU behind it may work in place
        y = torch.empty(n, len(weight), high, wide, dtype=x.dtype, memory_format=torch.channels_last)
        for tiles, *strip in ctx.strips:
            v = x.new_empty(36, tiles, channels)
            run_kernel("input_transform", x, v, *x.shape, results, *strip)
            run_kernel("output_transform", products(v, u.forward), y, n, height, width, len(weight), results, *strip)
        ctx.save_for_backward(x)
        ctx.u = u
        return y if bias is None else y.add_(bias[:, None, None])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        [x] = ctx.saved_tensors
        dy, dx, du, dw = pixels(dy), None, None, None
        (n, height, width, channels), results, filters = x.shape, ctx.results, dy.shape[3]
        if ctx.needs_input_grad[0]:
            dx = torch.zeros_like(x)
        for tiles, *strip in ctx.strips:
            dm = dy.new_empty(36, tiles, filters)
            run_kernel("output_gradient", dy, dm, n, height, width, filters, results, *strip)
            if dx is not None:
                run_kernel("input_gradient", products(dm, ctx.u.backward), dx, *x.shape, results, *strip)
            if ctx.needs_input_grad[1]:
                v = x.new_empty(36, tiles, channels)
                run_kernel("input_transform", x, v, *x.shape, results, *strip)
                du = products(dm.mT, v, du)
        if du is not None:  # of 36 long rows, which are slow as the left one of a product
            g = twice_g(7 - results, dy.dtype)
            dw = (g.T.contiguous() @ du.view(36, -1)).T.reshape(ctx.u.weight.shape)
        db = dy.sum((0, 1, 2)) if ctx.needs_input_grad[2] else None
        return None if dx is None else dx.permute(0, 3, 1, 2), dw, db, None


class NormAndActivation(torch.autograd.Function):
    """`norm_and_activation` of x (N, H, W, C), contiguous."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, slope: float) -> Tensor:
        n, height, width, channels = x.shape
        y, statistics = torch.empty_like(x), x.new_empty(2, n, channels)
        run_kernel("norm", x, y, statistics, n, height * width, channels, eps, slope)
        ctx.save_for_backward(x, statistics)
        ctx.slope = slope
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        x, statistics = ctx.saved_tensors
        n, height, width, channels = x.shape
        dx = torch.empty_like(x)
        run_kernel("norm_gradient", x, statistics, dy.contiguous(), dx, n, height * width, channels, ctx.slope)
        return dx, None, None


def norm_and_activation(x: Tensor, eps: float, slope: float) -> Tensor:
    """Instance norm of x (N, C, H, W), of which negative results are multiplied by `slope`: 0 for ReLU, 1 for none."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    return NormAndActivation.apply(pixels(wide), eps, slope).permute(0, 3, 1, 2).to(x.dtype)
