"""Checks of notebook 08: costs by hand, a lighter block, a layer on the roofline, the spread of seeds, the goal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import mul
from random import Random

import pandas
from torch import nn

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, formula, require, require_kind
from labkit.measure.quality import time_to_quality
from labkit.measure.quality import within_spread as right_within
from labkit.measure.roofline import multiply_adds as right_multiply_adds
from labkit.measure.roofline import roofline_seconds
from labkit.networks.light import grouped_block, inverted_block, separable_block
from labkit.networks.resnet import ResidualBlock


def _other_layer(random: Random) -> tuple[int, int, int, int]:
    """Channels in and out, kernel and groups, to `multiply_adds`."""
    groups = random.choice((1, 2, 4, 8))
    return groups * random.randrange(1, 30), groups * random.randrange(1, 30), random.randrange(1, 8), groups


@formula(right_multiply_adds, [(64, 128, 1, 1), (64, 128, 3, 1), (64, 128, 3, 4), (64, 64, 3, 64)], _other_layer)
def multiply_adds(in_channels: int, out_channels: int, kernel: int, groups: int) -> Mistakes:
    """Compares ``answer(in_channels, out_channels, kernel, groups)`` with `labkit.measure.multiply_adds`."""
    right = right_multiply_adds(in_channels, out_channels, kernel, groups)
    yield 2 * right, "Here a multiplication with its addition counts once; FLOPs count them as two."
    yield right * groups, "That ignores groups: how many input channels does one output channel see?"
    yield right / groups, "That is one group's share: how many groups are there, and do they all compute?"
    yield right // kernel, "How many input pixels does the kernel lie on, in both directions?"
    yield None, "Which inputs does one output value need, and how many values has an output pixel?"


Layer = tuple[int, int, int, int, int]  # channels in, channels out, kernel, stride, groups


def _apart(layers: list[Layer]) -> list[int]:
    """How far apart in the picture the pixels lie that each layer reads, and those that the last one writes."""
    return [*accumulate((stride for *_, stride, _ in layers), mul, initial=1)]


def _sees(layers: list[Layer], apart: list[int]) -> int:
    return 1 + sum((kernel - 1) * pixels for (_, _, kernel, *_), pixels in zip(layers, apart, strict=False))


def _work(layers: list[Layer], size: int, apart: list[int]) -> int:
    return sum(
        right_multiply_adds(*one[:3], one[4]) * (size // by) ** 2 for one, by in zip(layers, apart, strict=False)
    )


def _right_network(layers: list[Layer], size: int) -> dict[str, int]:
    apart = _apart(layers)
    weights = _work(layers, 1, [1] * len(layers))
    return {"multiply_adds": _work(layers, size, apart[1:]), "weights": weights, "sees": _sees(layers, apart)}


def _other_network(random: Random) -> tuple[list[Layer], int]:
    channels, layers = 4, []
    for _ in range(random.randrange(2, 6)):
        into, channels = channels, random.choice((4, 8, 12))
        layers.append((into, channels, random.choice((1, 3, 4, 5)), random.choice((1, 2)), random.choice((1, 2, 4))))
    return layers, 32 * random.randrange(1, 4)


@formula(
    _right_network,
    [
        ([(3, 8, 7, 1, 1), (8, 16, 3, 2, 4), (16, 16, 3, 2, 16), (16, 3, 3, 1, 1)], 32),
        ([(3, 4, 1, 2, 1)], 8),
        ([(3, 4, 3, 4, 1), (4, 4, 3, 1, 1)], 32),
    ],
    _other_network,
)
def of_network(layers: list[Layer], size: int) -> Mistakes:
    """Compares ``answer(layers, size)`` with the cost of convolutions, and with how far one output sees."""
    right, apart = _right_network(layers, size), _apart(layers)
    no_groups = [(*layer[:4], 1) for layer in layers]
    yield {"weights": _right_network(no_groups, size)["weights"]}, "A group's outputs see its own input channels only."
    yield {"multiply_adds": _work(layers, size, apart)}, "A layer has as many outputs as pixels *after* its stride."
    yield {"multiply_adds": right["weights"]}, "That is for one pixel: each weight is used once for every output pixel."
    yield {"sees": _sees(layers, [1] * len(layers))}, "After strides, neighbours lie farther apart."
    yield {"sees": _sees(layers, apart[1:])}, "A stride spreads the layers after it, not its own."
    yield {"sees": right["sees"] - 1}, "Before the first layer, an output is one pixel wide: begin with 1."
    yield None, "Go through the layers one by one: sides, then weights, then the work, then how wide it sees."


@exercise(separable_block, grouped_block, inverted_block)
def light_block(answer: Callable[[int], nn.Module]) -> None:
    """Checks a design of a residual block: its FLOPs, and what its output depends on."""
    channels = drawn(64, lambda random: random.choice((64, 80, 96)))
    share = ask(answer, channels, through=observe.block_flops) / observe.block_flops(ResidualBlock, channels)
    require(share <= 0.25, f"with {channels} channels it has {share:.2f} of the plain block's FLOPs, not a quarter.")
    seen = ask(answer, channels, through=observe.light_design)
    shape = 32, channels, 9, 11
    require(seen["shape"] == shape, f"from pictures of shape {shape} it makes {seen['shape']}: pad.")
    require(seen["adds_x"], "with all weights 0 it should give back x: x + ..., and nothing after it.")
    around = bool(seen["sees"][2:7, 3:8].all())
    require(around, "an output pixel does not see all 5 x 5 pixels around it.")
    alike = "a mirrored picture gives the mirrored result: neighbours on all sides count alike, as in a mean."
    require(not seen["alike"], alike)
    blind = f"an output channel does not depend on {seen['blind']:.3g} of the {channels} input channels."
    require(not seen["blind"], blind)
    require(not seen["linear"], "without an activation it is one linear map.")


def _right_place(flops: float, moved: float, flops_per_s: float, bytes_per_s: float) -> dict[str, float | str]:
    limit = "memory" if moved / bytes_per_s > flops / flops_per_s else "arithmetic"
    us = 1e6 * roofline_seconds(flops, moved, flops_per_s, bytes_per_s)
    return {"flop_per_byte": flops / moved, "us": us, "limit": limit}


@formula(
    _right_place,
    [(4.8e9, 1.1e7, 15.7e12, 900e9), (1.9e7, 8.4e6, 15.7e12, 900e9), (0.0, 8.4e6, 15.7e12, 900e9)],
    lambda random: tuple(10 ** random.uniform(*ends) for ends in ((6, 10), (6, 8), (12, 14), (11, 12.5))),
)
def on_the_roof(flops: float, bytes_moved: float, flops_per_s: float, bytes_per_s: float) -> Mistakes:
    """Compares ``answer(flops, bytes_moved, flops_per_s, bytes_per_s)`` with a layer's place under the roofline."""
    right = _right_place(flops, bytes_moved, flops_per_s, bytes_per_s)
    computing, moving = 1e6 * flops / flops_per_s, 1e6 * bytes_moved / bytes_per_s
    yield {"us": computing + moving}, "Computing and moving overlap: the longer of the two counts, not the sum."
    yield {"us": min(computing, moving)}, "The shorter one is over first: the layer takes at least the longer."
    yield {"us": max(computing, moving) / 1e6}, "Those are seconds: a second has 1e6 microseconds."
    yield {"us": computing if right["limit"] == "memory" else moving}, "That is the other limit's time."
    if flops:
        yield {"flop_per_byte": bytes_moved / flops}, "That is bytes per FLOP: turn it upside down."
    yield {"flop_per_byte": flops_per_s / bytes_per_s}, "That is where the device's roof bends: ask the layer."
    other = "arithmetic" if right["limit"] == "memory" else "memory"
    yield {"limit": other}, "Left of the bend memory is the limit, right of it arithmetic."
    yield None, "Which takes longer, to compute the FLOPs or to move the bytes?"


Runs = dict[str, tuple[list[tuple[float, float]], str]]  # by name: fg and bg of some seeds, and a hint
RULE = "a run's median is to be no worse than the baseline's worst seed, in fg and in bg."


def _any_runs(random: Random) -> Runs:
    """Runs on both sides of the worst seed of "plain", which lies beyond its mean plus standard deviation."""
    usual = [(random.uniform(6, 6.5), random.uniform(2, 2.2)) for _ in range(4)]
    worst = random.uniform(8, 9), random.uniform(3, 3.5)
    runs = {"plain": ([*usual, worst], RULE)}
    for i in range(20):
        by, odd = random.uniform(0.8, 1.1), random.choice((0.6, 1.5))  # one lucky or unlucky seed
        factors = [odd * by, *(by * random.uniform(0.98, 1.02) for _ in range(4))]
        runs[f"run {i}"] = [(worst[0] * one, worst[1] * one) for one in factors], RULE
    return runs


@exercise(right_within)
def within_spread(answer: Callable[[pandas.DataFrame, str], pandas.Series]) -> None:
    """Compares ``answer(scores, baseline)`` with `labkit.measure.quality.within_spread`."""
    usual: Runs = {
        "baseline": ([(7.0, 3.0), (8.0, 2.5), (7.1, 3.5)], "it is as good as its worst, in fg and bg, each by itself."),
        "better": ([(5.0, 1.0), (5.5, 1.2), (6.0, 1.1)], "lower is better: below all of the baseline's is not worse."),
        "alike": ([(7.9, 3.4), (7.8, 3.3), (7.9, 3.4)], "it may be worse than the baseline's median."),
        "at the edge": ([(8.0, 3.5)] * 3, "as bad as the baseline's worst seed is no worse."),
        "one good seed": ([(7.0, 3.0), (9.0, 4.0), (9.5, 4.5)], "one lucky seed is not enough: take the median."),
        "one bad seed": ([(7.2, 2.6), (7.4, 2.8), (20.0, 9.0)], "take the median, neither mean nor worst."),
        "muddy": ([(7.0, 5.0), (7.1, 5.5), (7.2, 5.2)], "its fg is fine, and its bg is not: both count."),
        "still apples": ([(12.0, 2.0), (12.5, 2.1), (12.2, 2.2)], "its bg is fine, and its fg is not: both count."),
    }
    runs = drawn(usual, _any_runs)
    rows = [(name, seed, *pair) for name, (pairs, _) in runs.items() for seed, pair in enumerate(pairs)]
    scores = pandas.DataFrame(rows, columns=["name", "seed", "fg", "bg"]).set_index(["name", "seed"])
    baseline = drawn("baseline", lambda _: "plain")
    got, right = ask(answer, scores, baseline), right_within(scores, baseline)
    require_kind(got, "a Series")
    require(set(got.index) == set(right.index), f"a value for each name is expected, not for {list(got.index)}.")
    for name, (_, advice) in runs.items():
        told = "within" if got[name] else "not within"
        require(bool(got[name]) == right[name], f"{name}: {told} in your answer, but {advice}")


Looks = list[tuple[float, float, float]]


def _right_reached(looks: Looks, fg: float, bg: float) -> float:
    curve = pandas.DataFrame(looks, columns=["seconds", "fg", "bg"]).assign(name="a run", seed=0, images=0, flops=0)
    return float(time_to_quality(curve, fg, bg)["seconds"].fillna(float("inf")).iloc[0])


GOOD, BAD = (8.0, 3.0), (12.0, 3.0)
RUNS = [[GOOD, BAD, GOOD, GOOD], [BAD, (9.0, 4.0), GOOD], [GOOD, BAD, GOOD], [BAD, (8.0, 5.0), GOOD, BAD, (7.0, 6.0)]]


def _any_looks(random: Random) -> tuple[Looks, float, float]:
    """Looks of a run whose scores are on another scale, to `reached_at`."""
    scale = random.uniform(1.5, 3)
    looks = [random.choice((GOOD, GOOD, BAD, (8.0, 5.0))) for _ in range(9)]
    return [(i + random.random(), scale * fg, scale * bg) for i, (fg, bg) in enumerate(looks)], scale * 9, scale * 4


@formula(
    _right_reached,
    [([(10.0 * i, *look) for i, look in enumerate(looks, 1)], 9.0, 4.0) for looks in RUNS],
    _any_looks,
)
def reached_at(looks: Looks, fg: float, bg: float) -> Mistakes:
    """Compares ``answer(looks, fg, bg)`` with `labkit.time_to_quality`."""
    good = [time for time, *look in looks if look[0] <= fg and look[1] <= bg]
    second = next((after for _, after in zip(good, good[1:], strict=False)), float("inf"))
    seconds = [time for time, *_ in looks]
    right = _right_reached(looks, fg, bg)
    yield _right_reached([(time, its, 0.0) for time, its, _ in looks], fg, bg), "Its bg counts as well as its fg."
    yield min(good, default=float("inf")), "That is its first good look: the one after it has to be good, too."
    yield second, "Those two good looks have a bad one between them: remember only the look before."
    if right in seconds:
        yield seconds[seconds.index(right) - 1], "That is the first of the two looks: only the second one settles it."
    strictly = [(time, its + (its == fg), other + (other == bg)) for time, its, other in looks]
    yield _right_reached(strictly, fg, bg), "At most: a look with exactly fg or bg has reached the goal."
    yield None, "Two good looks, one right after the other; the time of the second. Without such two: infinity."
