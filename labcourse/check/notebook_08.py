"""Checks of notebook 08: costs by hand, a lighter block, a layer on the roofline, the spread of seeds, the goal."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pandas
import torch
from torch import Tensor, nn

from labcourse.check.answers import ask, drawn, exercise, guarded, require, require_kind
from labcourse.check.formula import Mistakes, formula
from labkit.measure.quality import within_spread as right_within
from labkit.measure.roofline import flop_counter, roofline_seconds
from labkit.measure.roofline import multiply_adds as right_multiply_adds
from labkit.networks.resnet import ResidualBlock


def _other_layer(random: Random) -> tuple[int, int, int, int]:
    """Channels in and out, kernel and groups, to `multiply_adds`."""
    groups, (into, out) = random.choice((2, 4, 8)), random.sample(range(3, 30, 2), 2)
    return groups * into, groups * out, random.randrange(3, 8), groups


@formula(right_multiply_adds, [(20, 48, 3, 1), (48, 20, 5, 4), (16, 32, 3, 16)], _other_layer)
def multiply_adds(in_channels: int, out_channels: int, kernel: int, groups: int) -> Mistakes:
    """Compares ``answer(in_channels, out_channels, kernel, groups)`` with `labkit.measure.multiply_adds`."""
    right = right_multiply_adds(in_channels, out_channels, kernel, groups)
    yield 2 * right, "That is twice as many: a multiplication with its addition counts once here, in FLOPs twice."
    yield right * groups, "That is too many, as without groups: how many input channels does one output channel see?"
    yield right / groups, "That is as many as for one group: how many groups are there, and do they all compute?"
    yield right // kernel, "How many input pixels does the kernel lie on, in both directions?"
    yield None, "Which inputs does one output value need, and how many values has an output pixel?"


Layer = tuple[int, int, int, int, int]  # channels in, channels out, kernel, stride, groups


def _right_network(layers: list[Layer], size: int) -> dict[str, int]:
    found, apart = {"multiply_adds": 0, "weights": 0, "sees": 1}, 1
    for into, out, kernel, stride, groups in layers:
        weights = right_multiply_adds(into, out, kernel, groups)
        found["weights"] += weights
        found["sees"] += (kernel - 1) * apart
        apart *= stride
        found["multiply_adds"] += (size // apart) ** 2 * weights
    return found


def _other_network(random: Random) -> tuple[list[Layer], int]:
    channels, layers = 4, []
    for _ in range(random.randrange(2, 6)):
        into, channels = channels, random.choice((4, 8, 12))
        layers.append((into, channels, random.choice((1, 3, 4, 5)), random.choice((1, 2)), random.choice((1, 2, 4))))
    return layers, random.choice((128, 256))  # more than one output sees


@formula(
    _right_network,
    [
        ([(3, 8, 7, 1, 1), (8, 16, 3, 2, 4), (16, 16, 3, 2, 16), (16, 3, 3, 1, 1)], 32),
        ([(3, 4, 4, 4, 1), (4, 8, 2, 1, 2)], 32),
    ],
    _other_network,
)
def of_network(layers: list[Layer], size: int) -> Mistakes:
    """Compares ``answer(layers, size)`` with the cost of convolutions, and with how far one output sees."""
    right = _right_network(layers, size)
    no_groups = [(*layer[:4], 1) for layer in layers]
    yield {"weights": _right_network(no_groups, size)["weights"]}, "A group's outputs see its own input channels only."
    yield {"multiply_adds": right["weights"]}, "That is for one pixel: each weight is used once for every output pixel."
    yield {"sees": right["sees"] - 1}, "That is one pixel too few. Before the first layer, an output is one pixel wide."
    early, late, apart = 0, 1, 1
    for into, out, kernel, stride, groups in layers:
        early += (size // apart) ** 2 * right_multiply_adds(into, out, kernel, groups)
        apart *= stride
        late += (kernel - 1) * apart
    yield {"multiply_adds": early}, "A layer works at the pixels that come out: divide the side by its stride first."
    yield {"sees": late}, "A layer's own stride widens the layers after it, and not itself."
    told = "how wide it sees (after a stride, neighbours lie farther apart), its side *after* its stride, and its work."
    yield None, f"Go through the layers one by one: a layer's weights, {told}"


def _flops(make: Callable[[int], nn.Module], channels: int) -> int:
    """The FLOPs of a block for 32 x 32 pixels."""
    with flop_counter() as counter, torch.no_grad():
        make(channels).to("meta")(torch.empty(1, channels, 32, 32, device="meta"))
    return int(counter.get_total_flops())


def _dependence(block: nn.Module, x: Tensor, draws: int, outputs: list[int]) -> Tensor:
    """What the output of a block depends on, whatever its layers are called.

    `x` consists of patches of equal pixels. Around the middle of one an activation has the same slope everywhere, and
    a norm, which lets each pixel depend on all others, adds the same to each derivative: their differences are local.

    Args:
        x: pictures.
        draws: how often the weights that are learnt are drawn.
        outputs: channels.

    Returns:
        (draw, output, picture, patch, channel, 25): how F in a middle of a patch changes with the 5 x 5 pixels around
        it, less how it changes with a pixel three farther down and across.
    """
    found, middle = [], PATCH // 2
    for _ in range(draws):
        with torch.no_grad():
            for weight in filter(lambda weight: weight.requires_grad, block.parameters()):
                size = (1 + torch.rand(weight.shape)) / math.sqrt(math.prod(weight.shape[1:]))
                weight.copy_(size * torch.randn(weight.shape).sign())
        given = x.clone().requires_grad_()
        middles = (block(given.clone()) - given)[:, :, middle::PATCH, middle::PATCH].sum((0, 2, 3))
        for output in outputs:
            slopes = torch.autograd.grad(middles[output], given, retain_graph=True)[0]
            around = slopes.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).flatten(2, 3).transpose(1, 2)
            around = around[..., middle - 2 :, middle - 2 :]
            found.append((around[..., :5, :5] - around[..., 5:6, 5:6]).flatten(-2))
    return torch.stack(found).unflatten(0, (draws, len(outputs)))


@exercise()
def light_block(answer: Callable[[int], nn.Module]) -> None:
    """Checks a design of a residual block: its FLOPs, and what its output depends on, wherever norms are."""
    many = drawn(64, lambda random: random.choice((72, 88, 104)))
    for channels in (64, many):
        with guarded(answer):
            flops = _flops(answer, channels)
        share = flops / _flops(ResidualBlock, channels)
        require(share <= 0.25, f"with {channels} channels it has {share:.3f} of the plain block's FLOPs, no quarter.")
    depends = {}
    for channels, draws, outputs in ((8, 40, [0, 7]), (many, 2, [*range(0, many, 20)])):
        x = 3 * torch.randn(2, channels, 2, 3, dtype=torch.float64)
        x = x.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)
        shape = tuple(x.shape)
        with guarded(answer, x):
            block = answer(channels).double()
            with torch.no_grad():
                made = tuple(block(x).shape)
            require(made == shape, f"from pictures of shape {shape} it makes {made}: does it pad?")
            found = _dependence(block, x, draws, outputs)
            with torch.no_grad():
                for weight in filter(lambda weight: weight.requires_grad, block.parameters()):
                    weight.zero_()
                adds_x = all(torch.allclose(block(one), one) for one in (x, x[:1, :, :9, :12]))
        require(adds_x, "with all weights 0 it should give back x: x + ..., and nothing after it.")
        depends[channels] = found / found.abs().max()
    few = depends[8].permute(1, 4, 0, 2, 3, 5).flatten(2, 4).flatten(0, 1)  # (of two channels, drawn, 5 x 5)
    sees = int((few.abs().amax((0, 1)) > TINY).sum())
    require(sees == 25, f"an output pixel does not see all 5 x 5 pixels around it, but {sees} of them, norms apart.")
    learnt = int(torch.linalg.matrix_rank(few / (few.norm(dim=-1, keepdim=True) + TINY), rtol=TINY).max())
    told = f"of the 5 x 5 pixels' weights {learnt} are learnt one by one. Is there a mean, or a fixed weight?"
    require(learnt == 25, told)
    blind = float((depends[many].abs().amax((0, 2, 3, 5)) < TINY).sum(1).double().mean())
    told = f"an output channel does not depend on {blind:.3g} of the {many} input channels, norms apart."
    require(not blind, told)
    bent = bool((depends[8] - depends[8][:, :, :, :1]).abs().max() > 0.01)
    require(bent, "norms apart, it is one linear map: where is its activation?")


PATCH = 15  # pixels: around the middle of a patch, two 3 x 3 convolutions and a norm between them see this patch alone
TINY = 1e-6  # more than rounding, relative to the largest derivative


def _right_place(flops: float, moved: float, flops_per_s: float, bytes_per_s: float) -> dict[str, float | str]:
    limit = "memory" if moved / bytes_per_s > flops / flops_per_s else "arithmetic"
    us = 1e6 * roofline_seconds(flops, moved, flops_per_s, bytes_per_s)
    return {"flop_per_byte": flops / moved, "us": us, "limit": limit}


def _other_place(random: Random) -> tuple[float, ...]:
    """A layer that is clearly on one side of the bend, and a device, to `on_the_roof`."""
    moved, bytes_per_s, bend = (10 ** random.uniform(*ends) for ends in ((6, 8), (11, 12.5), (0.5, 2.5)))
    return moved * bend * random.choice((0.2, 0.5, 2, 5)), moved, bend * bytes_per_s, bytes_per_s


@formula(
    _right_place,
    [
        *((6e8, 1.1e7, 312e12, 1.6e12), (1.1e8, 1.1e7, 1e11, 5e10)),
        *((flops, 8.4e6, 15.7e12, 900e9) for flops in (0.0, 1.445e8)),  # of 17.2 a byte, just left of the bend
    ],
    _other_place,
)
def on_the_roof(flops: float, bytes_moved: float, flops_per_s: float, bytes_per_s: float) -> Mistakes:
    """Compares ``answer(flops, bytes_moved, flops_per_s, bytes_per_s)`` with a layer's place under the roofline."""
    right = _right_place(flops, bytes_moved, flops_per_s, bytes_per_s)
    computing, moving = 1e6 * flops / flops_per_s, 1e6 * bytes_moved / bytes_per_s
    yield {"us": computing + moving}, "Computing and moving overlap: the longer of the two counts, not the sum."
    yield {"us": min(computing, moving)}, "The shorter one is over first: the layer takes at least the longer."
    yield {"us": max(computing, moving) / 1e6}, "Those are seconds: a second has 1e6 microseconds."
    yield {"us": max(computing, moving) / 1e3}, "Those are milliseconds: a millisecond has 1e3 microseconds."
    yield {"flop_per_byte": flops // bytes_moved}, "flop_per_byte need not be a whole number: divide with /."
    yield {"flop_per_byte": bytes_moved / (flops or 1)}, "That is bytes per FLOP: turn it upside down."
    yield {"flop_per_byte": flops_per_s / bytes_per_s}, "That is where the device's roof bends: ask the layer."
    other = "arithmetic" if right["limit"] == "memory" else "memory"
    yield {"limit": other}, "Left of the bend memory is the limit, right of it arithmetic."
    yield None, "Which takes longer, to compute the FLOPs or to move the bytes? 0 FLOPs have bytes, too."


@exercise()
def within_spread(answer: Callable[[pandas.DataFrame, str], pandas.Series]) -> None:
    """Compares ``answer(scores, baseline)`` with `labkit.measure.quality.within_spread`."""
    baseline, scale = drawn(("baseline", 1.0), lambda random: (f"plain {random.random():.3f}", random.uniform(1, 3)))
    runs = {  # by name: fg and bg of some seeds, and what decides
        "better": ([(5.0, 1.0), (5.5, 1.2), (6.0, 1.1)], "lower is better: below all of the baseline's is not worse."),
        baseline: ([(7.0, 3.0), (8.0, 2.5), (7.1, 3.5)], "it is as good as its worst, in fg and bg, each by itself."),
        "alike": ([(7.9, 3.4), (7.8, 3.3), (7.9, 3.4)], "it may be worse than the baseline's median."),
        "at the edge": ([(8.0, 3.5)] * 3, "as bad as the baseline's worst seed is no worse."),
        "one good seed": ([(7.0, 3.0), (8.05, 3.6), (9.5, 4.5)], "one lucky seed is not enough: take the median."),
        "one bad seed": ([(20.0, 9.0), (7.4, 2.8), (7.2, 2.6)], "take the median, neither mean nor worst."),
        "muddy": ([(5.0, 5.0), (5.1, 5.5), (5.2, 5.2)], "its fg is fine, and its bg is not: both count."),
        "still apples": ([(9.0, 1.0), (9.5, 1.1), (9.2, 1.2)], "its bg is fine, and its fg is not: both count."),
        "by turns": ([(9.0, 3.0), (7.5, 4.0), (7.4, 3.2)], "its median of fg is fine, and so is its median of bg."),
        "four": ([(9.0, 4.0), (7.0, 3.0), (8.8, 3.9), (7.6, 3.2)], "the median of four is between two, here above."),
        "and four": (
            [(9.0, 4.0), (6.0, 2.0), (8.2, 3.6), (7.6, 3.2)],
            "the median of four is between two, here below.",
        ),
    }
    pairs = {(name, seed): pair for name, (seeds, _) in runs.items() for seed, pair in enumerate(seeds)}
    scores = scale * pandas.DataFrame(pairs, index=["fg", "bg"]).T.rename_axis(["name", "seed"])
    got, right = ask(answer, scores, baseline), right_within(scores, baseline)
    require_kind(got, "a Series")
    names = [*map(str, got.index)]
    require(sorted(names) == sorted(right.index), f"a value for each name is expected, not for {names}.")
    require(got.dtype == bool, f"True or False is expected for each name, not {got.tolist()}.")
    for name, (_, advice) in runs.items():
        told = "within" if got[name] else "not within"
        require(got[name] == right[name], f"{name}: {told} in your answer, but {advice}")


Looks = list[tuple[float, float, float]]


def _right_reached(looks: Looks, fg: float, bg: float) -> float:
    good = [its_fg <= fg and its_bg <= bg for _, its_fg, its_bg in looks]
    return next((looks[i][0] for i in range(1, len(looks)) if good[i - 1] and good[i]), math.inf)


GOOD, EDGE, BAD, MUDDY = (8.0, 3.0), (9.0, 4.0), (12.0, 3.0), (8.0, 5.0)
RUNS = [[GOOD, GOOD, BAD, GOOD, GOOD], [], [BAD, GOOD, GOOD], [BAD, EDGE, GOOD], [GOOD, BAD, GOOD], [BAD, GOOD, MUDDY]]


def _any_looks(random: Random) -> tuple[Looks, float, float]:
    """Looks of a run whose scores are on another scale, to `reached_at`."""
    scale = random.uniform(1.5, 3)
    looks = [(i + random.random(), scale * fg, scale * bg) for i, (fg, bg) in enumerate(random.choice(RUNS))]
    return looks, scale * 9, scale * 4


@formula(
    _right_reached,
    [([(10.0 * i, *look) for i, look in enumerate(looks, 1)], 9.0, 4.0) for looks in RUNS],
    _any_looks,
)
def reached_at(looks: Looks, fg: float, bg: float) -> Mistakes:
    """Compares ``answer(looks, fg, bg)`` with `labkit.time_to_quality`."""
    first, second, *_ = [*(time for time, *its in looks if its[0] <= fg and its[1] <= bg), math.inf, math.inf]
    yield _right_reached([(time, its, 0.0) for time, its, _ in looks], fg, bg), "Its bg counts as well as its fg."
    yield first, "That is its first good look: the one after it has to be good, too."
    good = [its_fg <= fg and its_bg <= bg for _, its_fg, its_bg in looks]
    of_pair = next((looks[i - 1][0] for i in range(1, len(looks)) if good[i - 1] and good[i]), math.inf)
    yield of_pair, "That is the first of the two looks: the goal is reached at the second."
    yield second, "That is its second good look, and the one before it is bad: remember only the look before."
    strictly = [(time, its + (its == fg), other + (other == bg)) for time, its, other in looks]
    yield _right_reached(strictly, fg, bg), "At most: a look with exactly fg or bg has reached the goal."
    yield None, "Two good looks, one right after the other; the time of the second. Without such two: infinity."
