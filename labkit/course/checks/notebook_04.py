"""Checks of notebook 04, without a GPU: the two cycles on two CUDA streams, and two totals of what they take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real

import pandas
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from labkit.course.checks.answers import WrongAnswer, instead, passed, require
from labkit.course.races import record
from labkit.models.cyclegan import Cycle, CycleGAN, Journey
from labkit.simulate import Launch, Timeline, play
from labkit.simulate.cuda_stubs import Stream
from labkit.step import Step
from labkit.variants.registry import make_step


class ReturnsCycles:
    """Goes round an answer and looks at what it returns."""

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:  # noqa: D102
        cycles = super().cycles(journeys)
        pair = "cycles must return two Cycles, A -> B -> A and B -> A -> B"
        require(isinstance(cycles, tuple | list), f"{pair}, {instead(cycles)}")
        require([type(cycle) for cycle in cycles] == [Cycle, Cycle], f"{pair}.")
        require(
            all(cycle.same is not None for cycle in cycles),
            "the identity pictures are missing: hand self.cycle the real picture of the other domain as well.",
        )
        return cycles


def streams(answer: type) -> None:
    """Holds a class that runs the two cycles on two streams to the baseline and to the rules of streams.

    Args:
        answer: overrides `cycles`; it is tried alone, and with "bf16".

    Raises:
        WrongAnswer: the losses differ, the cycles are not on two side streams, there is a race, nothing overlaps, the
            host waits, or the streams are not kept.
    """
    for others in ((), ("bf16",)):
        under = "with 'bf16': " if others else ""
        torch.manual_seed(0)
        model = CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)
        real_a, real_b = (torch.rand(1, 3, 32, 32) * 2 - 1 for _ in range(2))
        right = make_step(model, *others).losses("generators", {"real_a": real_a, "real_b": real_b})
        recorder, losses = record(_step(model, ReturnsCycles, answer, *others), real_a, real_b)
        wrong = [name for name in right if not torch.allclose(losses[name], right[name], rtol=1e-4)]
        require(
            not wrong,
            f"{under}{', '.join(wrong)} differ from the baseline's: run the same two journeys through self.cycle, "
            "and return A -> B -> A first.",
        )
        clocks = recorder.clocks
        sides = [stream for stream in clocks.begun if stream is not clocks.main]
        require(
            len(sides) > 0,
            f"{under}all work ran on main: launch each cycle in `with torch.cuda.stream(...)`, on a side stream of its "
            "own. Whether there is CUDA, ask journeys[0].real.is_cuda: here tensors lie on the CPU, but say yes.",
        )
        require(
            len(sides) > 1,
            f"{under}besides main, only {sides[0].name} has work: give each cycle a side stream of its own.",
        )
        require(
            not any(isinstance(leaf, Stream) for leaf in tree_leaves(list(vars(answer).values()))),
            "the streams are kept in the class, so every step ever made would share them: keep them in self.",
        )
        require(
            clocks.made == 2, f"{under}{clocks.made} side streams were made, and two are needed: one for each cycle."
        )
        for race in recorder.races():
            raise WrongAnswer(under + race.message)
        require(
            any(
                clocks.begun[late][early] < clocks.of[early][early] for early, late in itertools.combinations(sides, 2)
            ),
            f"{under}{sides[1].name} begins only when {sides[0].name} has finished, so nothing overlaps: let both wait "
            "for main and do their work, and only then let main wait for the one and the other.",
        )
    step = make_step(model, answer)
    first, again = (record(step, real_a, real_b)[0] for _ in range(2))
    require(
        not first.clocks.host,
        "the host waits, in a `synchronize`, and launches nothing meanwhile: wait_stream lets only the GPU wait.",
    )
    require(
        not again.clocks.made,
        "the second call makes new streams: make them at the first call, and keep them in self.",
    )
    passed("streams")


def _step(model: nn.Module, *speedups: str | type) -> Step:
    """The step, or what is likely wrong if there is none."""
    try:
        return make_step(model, *speedups)
    except (AssertionError, RuntimeError, TypeError) as error:
        raise WrongAnswer(
            f"no step can be made with your class ({error}): leave __init__ out, and make the streams in cycles, "
            "the first time it is called."
        ) from error


def times_as_long(answer: Callable[[pandas.DataFrame, pandas.DataFrame], Mapping[str, float]]) -> None:
    """Holds ``answer(one, two)`` to the totals of kernels played on one stream and on two: SIMULATED.

    Args:
        answer: is given two tables of kernels with the columns stream, begin and end, in microseconds, in the order
            they began; says how many times as long as the first the second took, by the "sum" of the durations and
            by the "wall" time, from the first begin to the last end.

    Raises:
        WrongAnswer: a total differs; the message names the mistake that gives it.
    """
    durations = (300.0, 40.0, 60.0, 50.0, 30.0, 20.0)  # on two streams, the first begins first and ends last
    apart = [Launch("kernel", 0.0, us, stream=20 + 4 * (i > 0), share=0.7) for i, us in enumerate(durations)]
    together = [replace(launch, stream=7) for launch in apart[:-1]]  # one fewer, or means were as good as sums
    one, two = play(together, gap_us=5.0), play(apart, gap_us=5.0)
    right = {"sum": two.kernel_sum / one.kernel_sum, "wall": two.wall / one.wall}
    got = answer(_table(one, 1000.0), _table(two, 3000.0))
    require(
        isinstance(got, Mapping) and got.keys() == right.keys(),
        f"a dict with the keys {[*right]} is expected, "
        + (f"not one with {[*got]}." if isinstance(got, Mapping) else instead(got)),
    )
    require(all(isinstance(value, Real) for value in got.values()), "both values should be numbers.")
    for total, value in right.items():
        require(
            not math.isclose(got[total], 1 / value),
            f"{total}: that is one over it: divide the time of two streams by that of one.",
        )
    means = (two.kernel_sum / len(two.stream)) / (one.kernel_sum / len(one.stream))
    require(
        not math.isclose(got["sum"], means),
        "sum: that is the ratio of the mean durations: one of the two recordings may have more kernels.",
    )
    sides = [two.stream == stream for stream in (20, 24)]
    in_turn = sum(two.kernel_end[side].max() - two.kernel_start[side].min() for side in sides)
    walls = {
        right["sum"]: "that is the ratio of the sums: while two kernels run at once, the clock counts once.",
        in_turn / one.wall: "those are the times of both streams, added up: they passed at the same time.",
        two.busy / one.busy: "that is the ratio of the unions, when any kernel ran: the clock runs on in gaps.",
        (3000.0 + two.wall) / (1000.0 + one.wall): "neither table begins at 0: subtract the first begin.",
        two.kernel_end[-1] / one.wall: "the kernel that began last need not be the last to end: take max().",
    }
    for wrong, message in walls.items():
        require(not math.isclose(got["wall"], wrong), f"wall: {message}")
    for total, value in right.items():
        require(
            math.isclose(got[total], value),
            f"{total}: {got[total]:.3f}, it should be {value:.3f}. A duration is end - begin; the wall time goes from "
            "the first begin to the last end, over all streams.",
        )
    passed("times_as_long")


def _table(timeline: Timeline, begin: float) -> pandas.DataFrame:
    """The kernels in the order they began, the first of them at `begin` microseconds."""
    columns = {"stream": timeline.stream, "begin": timeline.kernel_start, "end": timeline.kernel_end}
    table = pandas.DataFrame(columns).sort_values("begin", kind="stable", ignore_index=True)
    return table.assign(begin=table["begin"] + begin, end=table["end"] + begin)
