"""Checks of notebook 08: multiply-adds by hand, a separable block, the roofline, and the spread of seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real

import pandas
import torch
from torch import nn

from labkit.course.checks.answers import WrongAnswer, compare, instead, passed, require
from labkit.measure.quality import within_spread as right_within
from labkit.measure.roofline import multiply_adds as right_multiply_adds
from labkit.measure.roofline import roofline_seconds as right_seconds
from labkit.networks.light import Skip
from labkit.networks.light import separable_block as right_block


def multiply_adds(answer: Callable[[int, int, int, int], int]) -> None:
    """Holds ``answer(in_channels, out_channels, kernel, groups)`` to `labkit.measure.multiply_adds`."""
    for layer in ((64, 128, 1, 1), (64, 128, 3, 1), (64, 128, 3, 4), (64, 64, 3, 64)):
        in_channels, out_channels, kernel, groups = layer
        got, right = answer(*layer), right_multiply_adds(*layer)
        require(isinstance(got, Real), f"a number is expected, {instead(got)}")
        if got == right:
            continue
        told = f"{in_channels} -> {out_channels} channels, kernel {kernel}, groups={groups}: your answer is {got}."
        require(
            got != 2 * right, f"{told} Here a multiplication with its addition counts once; FLOPs count them as two."
        )
        require(
            got != right * groups or groups == 1,
            f"{told} That is what it costs without groups: how many input channels does one output channel see?",
        )
        require(
            groups == 1 or not math.isclose(got, right / groups),
            f"{told} That is one group's share: how many groups are there, and do they all compute?",
        )
        require(
            kernel == 1 or got != right // kernel,
            f"{told} How many input pixels does the kernel lie on, in both directions?",
        )
        require(False, f"{told} What does one output value need, and how many values has an output pixel?")
    passed("multiply_adds")


def separable_block(answer: Callable[[int], nn.Module]) -> None:
    """Holds ``answer(channels)`` to `labkit.networks.light.separable_block`: layers, parameters and, copied, output."""
    channels = 6
    torch.manual_seed(0)
    block, right = answer(channels), right_block(channels)
    require(isinstance(block, nn.Module), f"a module is expected, {instead(block)}")
    mine, its = ([layer for layer in one.modules() if isinstance(layer, nn.Conv2d)] for one in (block, right))
    kernels = [layer.kernel_size[0] for layer in mine]
    require(
        len(mine) == len(its),
        f"there are {len(mine)} convolutions (one used twice counts once): each of the block's two becomes a pair.",
    )
    require(
        kernels != [1, 3, 1, 3], "the 1x1 comes first in yours: begin with what looks at neighbours in each channel."
    )
    require(kernels == [3, 1, 3, 1], f"the kernels are {kernels}, in the order of the layers: 3x3, 1x1, and again.")
    for layer, other in zip(mine, its, strict=True):
        _require_layer(layer, other)
    pictures = torch.rand(2, channels, 8, 8)
    where = f"pictures of shape {tuple(pictures.shape)}"
    try:
        shape = tuple(block(pictures).shape)
    except RuntimeError as error:
        raise WrongAnswer(f"{where} fail ({error}). Is the size kept? Pad by 1 before each 3x3.") from error
    require(shape == tuple(pictures.shape), f"{where} come out as {shape}: pad by 1 before each 3x3.")
    with torch.no_grad():
        for layer, other in zip(mine, its, strict=True):
            other.load_state_dict(layer.state_dict())
    _require_output(block, right, pictures)
    passed("separable_block")


def _require_layer(layer: nn.Conv2d, other: nn.Conv2d) -> None:
    kernel = "3x3" if other.kernel_size[0] == 3 else "1x1"
    told = f"a {kernel} has groups={layer.groups}, and a weight of {layer.weight.numel()} numbers."
    require(kernel == "1x1" or layer.groups == other.groups, f"{told} It must see one channel only: each is a group.")
    require(layer.groups == other.groups, f"{told} So no channel hears of the others: the 1x1 is there to mix them.")
    require(
        (layer.bias is None) == (other.bias is None),
        f"a {kernel} has {'no' if layer.bias is None else 'a'} bias: as asked, the 1x1 have one and the 3x3 none.",
    )


def _require_output(block: nn.Module, right: Skip, pictures: torch.Tensor) -> None:
    """With equal weights, the outputs are equal; else one of the likely mistakes makes what comes out."""
    layers = list(right.conv_block)

    def after(kind: type[nn.Module], *extra: nn.Module) -> list[nn.Module]:
        """The layers, with `extra` after each that is of `kind` and sees one channel at a time."""
        is_depthwise = [isinstance(layer, kind) and getattr(layer, "groups", 2) > 1 for layer in layers]
        return [
            one for layer, hit in zip(layers, is_depthwise, strict=True) for one in (layer, *(extra if hit else ()))
        ]

    norm = nn.InstanceNorm2d(pictures.shape[1])
    zeros = [nn.ZeroPad2d(1) if isinstance(layer, nn.ReflectionPad2d) else layer for layer in layers]
    no_norm = [layer for layer in layers if not isinstance(layer, nn.InstanceNorm2d)]
    no_relu = [layer for layer in layers if not isinstance(layer, nn.ReLU)]
    with torch.no_grad():
        mistakes = [
            (right.conv_block(pictures), "the block's input is not in its output: add the skip connection."),
            (Skip(*zeros)(pictures), "the border differs: pad by reflection, as the reference's blocks do."),
            (
                Skip(*after(nn.Conv2d, nn.ReLU()))(pictures),
                "there is a ReLU between a 3x3 and its 1x1: nothing goes there.",
            ),
            (
                Skip(*after(nn.Conv2d, norm, nn.ReLU()))(pictures),
                "there are norm and ReLU between a 3x3 and its 1x1: here nothing goes there.",
            ),
            (
                Skip(*layers, nn.ReLU())(pictures),
                "there is a ReLU after the last norm: what is added may be negative, too.",
            ),
            (right(pictures).relu(), "there is a ReLU after the sum: the residual blocks of CycleGAN have none."),
            (Skip(*no_norm)(pictures), "the instance norms are missing, one after each 1x1."),
            (Skip(*no_relu)(pictures), "the ReLU after the first norm is missing."),
        ]
        otherwise = "with equal weights the output is not that of labkit's block: are all layers there, in this order?"
        compare(block(pictures), right(pictures), mistakes, otherwise)


def roofline_seconds(answer: Callable[[float, float, float, float], float]) -> None:
    """Holds ``answer(flops, bytes_moved, flops_per_s, bytes_per_s)`` to `labkit.measure.roofline.roofline_seconds`."""
    for work in ((4e9, 1e8, 50e9, 10e9), (1e8, 2e8, 50e9, 10e9), (0, 2e8, 50e9, 10e9)):
        flops, moved, flops_per_s, bytes_per_s = work
        told = f"{flops:g} FLOPs and {moved:g} bytes at {flops_per_s:g} FLOP/s and {bytes_per_s:g} bytes/s:"
        try:
            got, right = answer(*work), right_seconds(*work)
        except ZeroDivisionError as error:
            raise WrongAnswer(f"{told} yours divides by zero. Without FLOPs, what still takes time?") from error
        require(isinstance(got, Real), f"a number is expected, {instead(got)}")
        if math.isclose(got, right):
            continue
        told = f"{told} {got:g} s."
        computing, moving = flops / flops_per_s, moved / bytes_per_s
        require(
            not math.isclose(got, computing + moving),
            f"{told} Computing and moving do not take turns: while some values are computed, others are on their way.",
        )
        require(
            computing < moving or not math.isclose(got, moving), f"{told} Done is what has been computed and moved."
        )
        require(
            not math.isclose(got, flops / right),
            f"{told} That is a rate, the FLOP/s under the roof: return the time that the work takes at least.",
        )
        require(not math.isclose(got, computing), f"{told} There are bytes to move, too. How long does that take?")
        require(False, f"{told} Seconds are work divided by the rate at which it is done.")
    passed("roofline_seconds")


def within_spread(answer: Callable[[pandas.DataFrame, str], pandas.Series]) -> None:
    """Holds ``answer(scores, baseline)`` to `labkit.measure.quality.within_spread`."""
    scores = {  # fg and bg of three seeds
        "baseline": [(7.0, 3.0), (8.0, 2.5), (7.5, 3.5)],
        "better": [(5.0, 1.0), (5.5, 1.2), (6.0, 1.1)],
        "alike": [(7.9, 3.4), (7.8, 3.3), (7.9, 3.4)],
        "at the edge": [(8.0, 3.5), (8.0, 3.5), (8.0, 3.5)],
        "one good seed": [(7.0, 3.0), (9.0, 4.0), (9.5, 4.5)],
        "one bad seed": [(7.2, 2.6), (7.4, 2.8), (20.0, 9.0)],
        "muddy": [(7.0, 5.0), (7.1, 5.5), (7.2, 5.2)],
        "still apples": [(12.0, 2.0), (12.5, 2.1), (12.2, 2.2)],
    }
    hints = {
        "baseline": "the baseline is no worse than its own worst, in fg and in bg, each by itself.",
        "better": "lower is better: what is below all of the baseline's seeds is not worse than they are.",
        "alike": "it may be worse than the baseline's median, as the baseline's own worst seed is.",
        "at the edge": "as bad as the baseline's worst seed is no worse.",
        "one good seed": "its median is worse than the worst of the baseline's seeds: one lucky seed is not enough.",
        "one bad seed": "its median is at most the baseline's worst seed: take the median, neither mean nor worst.",
        "muddy": "its fg is fine, and its bg is not: both count.",
        "still apples": "its bg is fine, and its fg is not: both count.",
    }
    rows = [(name, seed, *pair) for name, pairs in scores.items() for seed, pair in enumerate(pairs)]
    table = pandas.DataFrame(rows, columns=["name", "seed", "fg", "bg"]).set_index(["name", "seed"])
    got, right = answer(table.copy(), "baseline"), right_within(table, "baseline")
    require(isinstance(got, pandas.Series), f"a Series is expected, {instead(got)}")
    require(set(got.index) == set(right.index), f"a value for each name is expected, not for {list(got.index)}.")
    for name, hint in hints.items():
        require(
            bool(got[name]) == right[name],
            f"{name}: {'within' if got[name] else 'not within'} in your answer, but {hint}",
        )
    passed("within_spread")
