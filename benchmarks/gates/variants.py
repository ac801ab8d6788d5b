"""Each speed-up on networks whose layers were changed: does it still compute what the baseline does?

    python benchmarks/gates/variants.py [part+part of a name ...] [--bad] [--list] [--timeout 120]
    python benchmarks/gates/variants.py "batched: " "graph: "        all changes of these speed-ups

Three updates in float64 with the same pictures, weights and decisions of the pools, beside the baseline's step of a
model that was made and changed alike. "equal": all losses and weights to 1e-9, relative, vectors (biases, whose
gradient before a norm is rounding only) to 1e-6. 16 bits have 10 % of a loss. "winograd float32" has pictures that are
large enough for its kernels, plain gradient descent, which shows gradients as they are, 1e-3 of a loss and 2 % of an
update's length. "nhwc", which Triton interprets slowly, has one update of one picture. "refused": a
`labkit.LabkitError`. "other draws": dropout drew in another order, as docs/speedups.md says it may. "MORE WORK":
equal, but frozen weights cost more gradients than at the baseline. "WRONG": other numbers, silently. "RAW": another
exception. "RAW, BASELINE": the baseline itself cannot train this: there is nothing to compare.
"""

import os
import sys

sys.path.insert(0, sys.path.pop(0).removesuffix("/gates"))  # this folder's numbers.py would hide Python's
if "nhwc" in "".join(sys.argv[1:]) or not sys.argv[1:]:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # without a GPU, before Triton is imported

import functools
import random
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gates import gate
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.utils._python_dispatch import TorchDispatchMode

import labkit

Change = Callable[[labkit.CycleGAN], Any]  # it may return a function to be called with the model once the step is made
LATER: dict[str, Change] = {}


def layers(network: nn.Module, kind: Any) -> list[tuple[nn.Module, str, nn.Module]]:
    """The layers of a kind, each with the module that holds it and its name there."""
    return [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, kind)
    ]


CONV = (nn.Conv2d, nn.ConvTranspose2d)


def conv(network: nn.Module, where: float = 0.5) -> nn.Module:
    """A convolution: 0 is the first, 0.5 one of a residual block, 1 the last."""
    found = layers(network, CONV)
    return found[round(where * (len(found) - 1))][2]


def swap(network: nn.Module, kind: Any, new: Callable[[nn.Module], nn.Module], where: float = 0.5) -> None:
    found = layers(network, kind)
    parent, name, child = found[round(where * (len(found) - 1))]
    setattr(parent, name, new(child))


def hook(kind: Any, where: float = 0.5, network: str = "G_A") -> Change:
    def change(model: labkit.CycleGAN) -> None:
        found = layers(getattr(model, network), kind)
        found[round(where * (len(found) - 1))][2].register_forward_hook(lambda m, given, out: out * 1.25)

    return change


class Scaled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1.25


class ScaledNorm(nn.InstanceNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 1.25


class SoftRelu(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(x)


def recast(cls: type) -> Callable[[nn.Module], nn.Module]:
    def new(layer: nn.Module) -> nn.Module:
        layer.__class__ = cls
        return layer

    return new


def other_forward(layer: nn.Module) -> None:
    before = layer.forward
    layer.forward = types.MethodType(lambda self, x: before(x) * 1.25, layer)


def with_parameter(model: labkit.CycleGAN) -> None:
    layer = conv(model.G_A)
    layer.register_parameter("gain", nn.Parameter(torch.tensor(1.25)))
    layer.register_forward_hook(lambda module, given, out: out * module.gain)


def counting(model: labkit.CycleGAN) -> None:
    layer = conv(model.G_A)
    layer.register_buffer("calls", torch.zeros(()))

    def count(module: nn.Module, given: Any, out: Tensor) -> None:
        module.calls += len(out)  # pictures seen

    layer.register_forward_hook(count)


def padded(mode: str) -> Change:
    def change(model: labkit.CycleGAN) -> None:
        layer = next(one for _, _, one in layers(model.G_A, nn.Conv2d) if one.kernel_size == (3, 3))
        layer.padding_mode, layer.padding = mode, (1, 1)
        layer._reversed_padding_repeated_twice = [1, 1, 1, 1]

    return change


def reflection_to_zero(model: labkit.CycleGAN) -> None:
    swap(model.G_A, nn.ReflectionPad2d, lambda layer: nn.ZeroPad2d(layer.padding))


def dropout(evaluated: bool) -> Change:
    def change(model: labkit.CycleGAN) -> Any:
        swap(model.G_B, nn.ReLU, lambda layer: nn.Sequential(layer, nn.Dropout(0.5)))
        return (lambda model: model.G_B.eval()) if evaluated else None

    return change


def first_layers(model: labkit.CycleGAN) -> None:
    for where in (0, 0.2):
        conv(model.G_A, where).requires_grad_(False)
        conv(model.G_B, where).requires_grad_(False)


def each(function: Callable[[nn.Module], Any], where: float = 0.5, network: str = "G_A") -> Change:
    def change(model: labkit.CycleGAN) -> None:
        function(conv(getattr(model, network), where))

    return change


def negative(layer: nn.Module) -> None:
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 0.75,))


def backward(layer: nn.Module) -> None:
    layer.register_full_backward_hook(
        lambda module, of_input, of_output: tuple(g if g is None else g * 3 for g in of_input)
    )


def weight_hook(layer: nn.Module) -> None:
    layer.weight.register_hook(lambda gradient: gradient * 3)


def later(change: Change) -> Change:
    return lambda model: change


CHANGES: dict[str, Change] = {
    "none": lambda model: None,
    "forward hook, block's convolution": hook(CONV),
    "forward hook, last convolution": hook(CONV, 1),
    "forward hook, norm": hook(nn.InstanceNorm2d),
    "forward hook, ReLU": hook(nn.ReLU),
    "forward hook, padding": hook(nn.ReflectionPad2d),
    "forward hook, D_A's convolution": hook(CONV, 0.5, "D_A"),
    "forward hook, G_A itself": lambda model: (
        model.G_A.register_forward_hook(lambda m, given, out: out * 0.75) and None
    ),
    "forward hook, after the step was made": later(hook(CONV)),
    "forward hook, norm, after the step was made": later(hook(nn.InstanceNorm2d)),
    "pre-hook": each(negative),
    "full backward hook that scales": each(backward),
    "full backward hook, last convolution": each(backward, 1),
    "hook of a weight's gradient": each(weight_hook),
    "spectral_norm, new": each(parametrizations.spectral_norm),
    "spectral_norm, new, D_A": each(parametrizations.spectral_norm, 0.5, "D_A"),
    "spectral_norm, old": each(nn.utils.spectral_norm),
    "spectral_norm, old, D_A": each(nn.utils.spectral_norm, 0.5, "D_A"),
    "weight_norm, new": each(parametrizations.weight_norm),
    "weight_norm, new, last": each(parametrizations.weight_norm, 1),
    "weight_norm, old": each(nn.utils.weight_norm),
    "prune.l1_unstructured": each(lambda layer: prune.l1_unstructured(layer, "weight", 0.5)),
    "prune.random_structured": each(lambda layer: prune.random_structured(layer, "weight", 0.5, dim=0)),
    "frozen G_B": lambda model: model.G_B.requires_grad_(False) and None,
    "frozen first layers": first_layers,
    "frozen part of D_A": each(lambda layer: layer.requires_grad_(False), 0, "D_A"),
    "frozen weight, its bias learns": each(lambda layer: layer.weight.requires_grad_(False), 0),
    "subclass of a convolution": lambda model: swap(model.G_A, nn.Conv2d, recast(Scaled)),
    "subclass of the norm": lambda model: swap(model.G_A, nn.InstanceNorm2d, recast(ScaledNorm)),
    "subclass of ReLU": lambda model: swap(model.G_A, nn.ReLU, recast(SoftRelu)),
    "forward of an instance": each(other_forward),
    "forward of an instance, last": each(other_forward, 1),
    "forward of a norm's instance": lambda model: other_forward(layers(model.G_A, nn.InstanceNorm2d)[2][2]),
    "a parameter more": with_parameter,
    "a buffer that counts pictures": counting,
    "a norm with weights": lambda model: swap(
        model.G_A, nn.InstanceNorm2d, lambda norm: nn.InstanceNorm2d(norm.num_features, affine=True)
    ),
    "a norm with another eps": lambda model: setattr(layers(model.G_A, nn.InstanceNorm2d)[2][2], "eps", 0.1),
    "circular padding": padded("circular"),
    "zeros for a reflection": reflection_to_zero,
    "another stride's dilation": each(
        lambda layer: (setattr(layer, "dilation", (2, 2)), setattr(layer, "padding", (1, 1)))
    ),
    "LeakyReLU for ReLU": lambda model: swap(model.G_A, nn.ReLU, lambda layer: nn.LeakyReLU(0.3)),
    "dropout": dropout(False),
    "dropout, G_B in eval mode": dropout(True),
    "G_B shares G_A's first layer": lambda model: setattr(conv(model.G_B, 0), "weight", conv(model.G_A, 0).weight),
}


class WeightGradients(TorchDispatchMode):
    """Counts the convolutions' gradients of weights."""

    count = 0

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), options: Any = None) -> Any:
        if function is torch.ops.aten.convolution_backward.default and arguments[-1][1]:
            self.count += 1
        return function(*arguments, **(options or {}))


class Descent(labkit.Step):
    def optimizer(self, weights: list[nn.Parameter], lr: float, betas: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(weights, lr=1e-3)


def step_of(change: Change, speedups: tuple[Any, ...], dtype: torch.dtype) -> labkit.Step:
    torch.manual_seed(1)
    model = labkit.CycleGAN("resnet_3blocks", "n_layers", ngf=4, ndf=4, n_layers=1, pool_size=3)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    after = change(model)
    emulate = {"emulate": True} if {"bf16", "fp16"} & set(speedups) else {}
    own = (Descent,) if dtype == torch.float32 else ()
    step = labkit.make_step(model.to(dtype), *speedups, *own, **emulate)
    if after is not None:
        after(model)
    return step


def update(step: labkit.Step, number: int, pictures: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    random.seed(number), torch.manual_seed(number), np.random.seed(number)
    return {name: value.detach().double() for name, value in step(*pictures[number]).items()}


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> tuple[float, str]:
    """The largest relative difference, and where it is."""
    worst = (0.0, "")
    for name, value in one.items():
        if name not in other or other[name].shape != value.shape:
            return float("inf"), f"no {name}"
        if not value.numel():
            continue
        value, beside = value.double(), other[name].double()
        gap = (
            float((value - beside).abs().max() / value.abs().max().clamp_min(1e-30)) if not value.equal(beside) else 0.0
        )
        worst = max(worst, (float("inf") if gap != gap else gap, name))
    return worst


def refused(error: Exception, who: str = "") -> gate.Result:
    if isinstance(error, labkit.LabkitError):
        return "refused" + who, gate.sentence(error)
    return "RAW" + who.upper(), gate.sentence(error)


def of_baseline(name: str, dtype: torch.dtype, pictures: list[tuple[Tensor, Tensor]]) -> Any:
    """The baseline's first weights, losses (or the result, if it fails), last weights, and gradients of weights."""
    kept = CACHE / f"{list(CHANGES).index(name)}_{dtype}_{len(pictures)}.pt"
    if not kept.exists():
        try:
            step = step_of(CHANGES[name], (), dtype)
            begun = gate.weights(step.model)
            losses = [update(step, number, pictures) for number in range(len(pictures) - 1)]
            after = gate.weights(step.model)
            with WeightGradients() as mode:
                update(step, len(pictures) - 1, pictures)
            torch.save((begun, losses, after, mode.count), kept)
        except Exception as error:
            torch.save(({}, refused(error, ", baseline"), {}, 0), kept)
    return torch.load(kept)


def examine(speedup: str, name: str) -> gate.Result:
    warnings.simplefilter("ignore")
    names, large = speedup.split()[:1], "float32" in speedup
    change, dtype = CHANGES[name], torch.float32 if large else torch.float64
    rounded = labkit.speedups().loc[names[0], "tolerance"] != "exact"
    generator = torch.Generator().manual_seed(5)
    size, batch, updates = (128, 2, 3) if large else (16, 1, 1) if speedup == "nhwc" else (16, 2, 3)
    pictures = [
        tuple((torch.rand(batch, 3, size, size, generator=generator) * 2 - 1).to(dtype) for _ in range(2))
        for _ in range(updates + 1)
    ]
    begun, expected, theirs, gradients = of_baseline(name, dtype, pictures)
    if isinstance(expected, tuple):
        return expected
    try:
        step = step_of(change, tuple(names), dtype)
        found = [update(step, number, pictures) for number in range(len(pictures) - 1)]
        ours = gate.weights(step.model)
    except Exception as error:
        return refused(error)
    of_losses = max(distance(one, other) for one, other in zip(expected, found, strict=True))
    matrices = {key: value for key, value in theirs.items() if value.ndim > 1}
    of_weights = distance(matrices, ours)
    of_vectors = distance({key: value for key, value in theirs.items() if value.ndim < 2}, ours)
    what = f"losses {of_losses[0]:.1e} {of_losses[1]}, weights {of_weights[0]:.1e} {of_weights[1]}"
    what += f", vectors {of_vectors[0]:.1e} {of_vectors[1]}"
    if rounded or large:
        moved = torch.cat(
            [
                (theirs[key] - begun[key]).double().flatten()
                for key in (theirs if large else matrices)
                if theirs[key].is_floating_point()
            ]
        )
        apart = torch.cat(
            [
                (theirs[key] - ours[key]).double().flatten()
                for key in (theirs if large else matrices)
                if theirs[key].is_floating_point()
            ]
        )
        share = float(apart.norm() / moved.norm())
        fits = of_losses[0] < (0.1 if rounded else 1e-3) and (rounded or share < 0.02)
        what += f", {share:.1%} of the update"
    else:
        fits = max(of_losses, of_weights)[0] < 1e-9 and of_vectors[0] < 1e-6
    if not fits:
        drawn = name == "dropout" and names[0] in ("batched", "accumulate", "compile", "streams", "nhwc")
        return "other draws" if drawn else "WRONG", what
    if "frozen" in name and names[0] != "compile":
        with WeightGradients() as mode:
            update(step, len(pictures) - 1, pictures)
        what += f", weights' gradients {gradients} -> {mode.count}"
        if mode.count > gradients * (2 if names[0] == "accumulate" else 1):  # which has two parts
            return "MORE WORK", what
    to_the_bit = of_losses[0] == of_weights[0] == of_vectors[0] == 0
    return "equal", "to the bit: " * to_the_bit + what


FIRST = ["batched", "recompute", "out_of_place", "subpixel", "winograd float32", "nhwc", "accumulate", "channels_last"]
LAST = ["data_parallel", "compile"]
SPEEDUPS = FIRST + [name for name in labkit.speedups().index if name not in FIRST + LAST] + LAST
CASES = {
    f"{speedup}: {name}": functools.partial(examine, speedup, name)
    for speedup in SPEEDUPS
    for name in CHANGES
}  # fmt: skip

if __name__ == "__main__":
    folder = tempfile.TemporaryDirectory()  # of the baselines
    CACHE = Path(folder.name)
    gate.run(CASES, __doc__, 120)
