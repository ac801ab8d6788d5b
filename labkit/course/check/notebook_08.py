"""Checks of notebook 08: multiply-adds by hand, a separable block, the roofline, and the spread of seeds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pandas
import torch
from torch import Tensor, nn

from labkit.course.check.answers import a_seed, drawn, exercise, expect, failing, require, require_kind
from labkit.measure.quality import within_spread as right_within
from labkit.measure.roofline import multiply_adds as right_multiply_adds
from labkit.measure.roofline import roofline_seconds as right_seconds
from labkit.networks.light import Skip
from labkit.networks.light import separable_block as right_block


def _other_layers(random: Random) -> list[tuple[int, int, int, int]]:
    """Channels in and out, kernel and groups, to `multiply_adds`."""
    layers = []
    for _ in range(5):
        groups = random.choice((1, 2, 4, 8))
        layers.append(
            (groups * random.randrange(1, 30), groups * random.randrange(1, 30), random.randrange(1, 8), groups)
        )
    return layers


@exercise(right_multiply_adds)
def multiply_adds(answer: Callable[[int, int, int, int], int]) -> None:
    """Compares ``answer(in_channels, out_channels, kernel, groups)`` with `labkit.measure.multiply_adds`."""
    for layer in drawn([(64, 128, 1, 1), (64, 128, 3, 1), (64, 128, 3, 4), (64, 64, 3, 64)], _other_layers):
        in_channels, out_channels, kernel, groups = layer
        right = right_multiply_adds(*layer)
        expect(
            answer(*layer),
            right,
            [
                (2 * right, "Here a multiplication with its addition counts once; FLOPs count them as two."),
                (
                    right * groups,
                    "That ignores groups: how many input channels does one output channel see?",
                ),
                (right / groups, "That is one group's share: how many groups are there, and do they all compute?"),
                (right // kernel, "How many input pixels does the kernel lie on, in both directions?"),
            ],
            "Which inputs does one output value need, and how many values has an output pixel?",
            f"{in_channels} -> {out_channels} channels, kernel {kernel}, groups={groups}",
        )


@exercise(right_block)
def separable_block(answer: Callable[[int], nn.Module]) -> None:
    """Compares ``answer(channels)`` with `labkit.networks.light.separable_block`: layers, weights, and the output."""
    torch.manual_seed(drawn(0, a_seed))
    channels = drawn(6, lambda random: random.randrange(3, 12))
    block, right = answer(channels), right_block(channels)
    if not isinstance(block, nn.Module):
        require_kind(block, "a module")
    mine, its = ([layer for layer in one.modules() if isinstance(layer, nn.Conv2d)] for one in (block, right))
    kernels = [layer.kernel_size[0] for layer in mine]
    pairs = "(one used twice counts once): each of the block's two becomes a pair."
    neighbours = "the 1x1 comes first in yours: begin with the 3x3, which looks at neighbours in each channel."
    require(len(mine) == len(its), f"there are {len(mine)} convolutions {pairs}")
    require(kernels != [1, 3, 1, 3], neighbours)
    require(kernels == [3, 1, 3, 1], f"the kernels are {kernels}, in the order of the layers: 3x3, 1x1, and again.")
    for layer, other, kernel in zip(mine, its, ("3x3", "1x1") * 2, strict=True):
        told = f"a {kernel} has groups={layer.groups}, and a weight of {layer.weight.numel()} numbers."
        alone = "It must see one channel only: each channel is a group."
        mixing = "So no channel hears of the others: the 1x1 is there to mix them."
        require(layer.groups == other.groups, f"{told} {alone if kernel == '3x3' else mixing}")
        has = "no" if layer.bias is None else "a"
        biases = f"a {kernel} has {has} bias: as asked, the 1x1 have one and the 3x3 none."
        require((layer.bias is None) == (other.bias is None), biases)
        other.load_state_dict(layer.state_dict())
    batch, height, width = drawn([2, 8, 8], lambda random: [random.randrange(1, 4), *random.sample(range(6, 16), 2)])
    pictures = torch.rand(batch, channels, height, width)
    fails = f"the block fails on pictures of shape {tuple(pictures.shape)}: pad by 1 before each 3x3."
    with torch.no_grad():
        with failing(RuntimeError, fails):
            got = block(pictures)
        _check_output(got, right, pictures)


def _check_output(got: Tensor, right: Skip, pictures: Tensor) -> None:
    """Compares outputs, and a wrong one with the outputs of likely mistakes, all with the same weights."""

    def changed(change: Callable[[nn.Module], list[nn.Module]]) -> Tensor:
        return Skip(*[one for layer in right.conv_block for one in change(layer)])(pictures)

    def without(kind: type[nn.Module]) -> Tensor:
        return changed(lambda layer: [] if isinstance(layer, kind) else [layer])

    def after_depthwise(*extra: nn.Module) -> Tensor:
        return changed(lambda layer: [layer, *extra] if getattr(layer, "groups", 1) > 1 else [layer])

    norm = nn.InstanceNorm2d(pictures.shape[1])
    zeros = changed(lambda layer: [nn.ZeroPad2d(1) if isinstance(layer, nn.ReflectionPad2d) else layer])
    added = pictures + right.conv_block(pictures).relu()
    expect(
        got,
        right(pictures),
        [
            (right.conv_block(pictures), "the block's input is not in its output: add the skip connection."),
            (zeros, "the border differs: pad by reflection, as the reference's blocks do."),
            (after_depthwise(nn.ReLU()), "there is a ReLU between a 3x3 and its 1x1: nothing goes there."),
            (after_depthwise(norm, nn.ReLU()), "norm and ReLU stand between a 3x3 and its 1x1: nothing goes there."),
            (added, "there is a ReLU after the last norm: the sum needs negative values, too."),
            (right(pictures).relu(), "there is a ReLU after the sum: the residual blocks of CycleGAN have none."),
            (without(nn.InstanceNorm2d), "the instance norms are missing, one after each 1x1."),
            (without(nn.ReLU), "the ReLU after the first norm is missing."),
        ],
        "with equal weights the output is not that of labkit's block: are all layers there, in this order?",
    )


def _any_rates(random: Random) -> list[tuple[float, float, float, float]]:
    """FLOPs, bytes and both per second, to `roofline_seconds`."""
    sizes = (1e6, 1e6, 1e9, 1e9)
    cases = [tuple(size * random.uniform(1, 1000) for size in sizes) for _ in range(6)]
    return [(flops, moved, per_s, bytes_per_s) for flops, moved, per_s, bytes_per_s in cases]


@exercise(right_seconds)
def roofline_seconds(answer: Callable[[float, float, float, float], float]) -> None:
    """Compares ``answer(flops, bytes_moved, flops_per_s, bytes_per_s)`` with `labkit.measure.roofline`'s."""
    turns = "Computing and moving do not take turns: while some values are computed, others are on their way."
    rate = "That is a rate, the FLOP/s under the roof: return the time that the work takes at least."
    for work in drawn([(4e9, 1e8, 50e9, 10e9), (1e8, 2e8, 50e9, 10e9), (0, 2e8, 50e9, 10e9)], _any_rates):
        flops, moved, flops_per_s, bytes_per_s = work
        right, computing, moving = right_seconds(*work), flops / flops_per_s, moved / bytes_per_s
        where = f"{flops:g} FLOPs and {moved:g} bytes at {flops_per_s:g} FLOP/s and {bytes_per_s:g} bytes/s"
        with failing(ZeroDivisionError, f"{where}: it divides by zero. Without FLOPs, what still takes time?"):
            got = answer(*work)
        mistakes = [
            (computing + moving, turns),
            (moving, "Done is what has been computed and moved."),
            (flops / right, rate),
            (computing, "There are bytes to move, too. How long does that take?"),
        ]
        expect(got, right, mistakes, "Seconds are work divided by the rate at which it is done.", where)


Runs = dict[str, tuple[list[tuple[float, float]], str]]


def _any_runs(random: Random) -> Runs:
    """Scores around those of a baseline, to `within_spread`."""
    hint = "a run's median is to be no worse than the baseline's worst seed, in fg and in bg."
    worse = dict.fromkeys(["baseline", *(f"run {i}" for i in range(20))], 1.0)
    worse |= {name: random.uniform(0.9, 1.2) for name in worse if name != "baseline"}
    return {
        name: ([(by * random.uniform(6, 8), by * random.uniform(2, 4)) for _ in range(5)], hint)
        for name, by in worse.items()
    }


@exercise(right_within)
def within_spread(answer: Callable[[pandas.DataFrame, str], pandas.Series]) -> None:
    """Compares ``answer(scores, baseline)`` with `labkit.measure.quality.within_spread`."""
    usual: Runs = {  # fg and bg of three seeds, and a hint
        "baseline": (
            [(7.0, 3.0), (8.0, 2.5), (7.5, 3.5)],
            "the baseline is no worse than its own worst, in fg and in bg, each by itself.",
        ),
        "better": (
            [(5.0, 1.0), (5.5, 1.2), (6.0, 1.1)],
            "lower is better: what is below all of the baseline's seeds is not worse than they are.",
        ),
        "alike": (
            [(7.9, 3.4), (7.8, 3.3), (7.9, 3.4)],
            "it may be worse than the baseline's median, as the baseline's own worst seed is.",
        ),
        "at the edge": ([(8.0, 3.5), (8.0, 3.5), (8.0, 3.5)], "as bad as the baseline's worst seed is no worse."),
        "one good seed": (
            [(7.0, 3.0), (9.0, 4.0), (9.5, 4.5)],
            "its median is worse than the worst of the baseline's seeds: one lucky seed is not enough.",
        ),
        "one bad seed": (
            [(7.2, 2.6), (7.4, 2.8), (20.0, 9.0)],
            "its median is at most the baseline's worst seed: take the median, neither mean nor worst.",
        ),
        "muddy": ([(7.0, 5.0), (7.1, 5.5), (7.2, 5.2)], "its fg is fine, and its bg is not: both count."),
        "still apples": ([(12.0, 2.0), (12.5, 2.1), (12.2, 2.2)], "its bg is fine, and its fg is not: both count."),
    }
    runs = drawn(usual, _any_runs)
    rows = [(name, seed, *pair) for name, (pairs, _) in runs.items() for seed, pair in enumerate(pairs)]
    scores = pandas.DataFrame(rows, columns=["name", "seed", "fg", "bg"]).set_index(["name", "seed"])
    got, right = answer(scores.copy(), "baseline"), right_within(scores, "baseline")
    require_kind(got, "a Series")
    require(set(got.index) == set(right.index), f"a value for each name is expected, not for {list(got.index)}.")
    for name, (_, hint) in runs.items():
        told = "within" if got[name] else "not within"
        require(bool(got[name]) == right[name], f"{name}: {told} in your answer, but {hint}")
