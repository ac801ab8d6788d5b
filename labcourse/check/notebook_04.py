"""Checks of notebook 04, without a GPU: two cycles on two streams, and a timeline's times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import numpy as np
import torch
from pandas import DataFrame
from torch import Tensor
from torch.utils._pytree import tree_leaves

from labcourse.check.answers import WrongAnswer, drawn, exercise, guarded, kind, require
from labcourse.check.formula import Mistakes, formula
from labcourse.check.networks import small_model
from labcourse.figure_1 import figure_times, paper_figure
from labcourse.races import RaceRecorder, record
from labkit.models.cyclegan import Cycle, Journey
from labkit.models.step import Step
from labkit.simulate.cuda_stubs import Stream, StreamError
from labkit.variants.registry import make_step
from labtrace.events.intervals import busy, levels


class _Around:
    """Stands before the answer in the stack of a step's classes.

    It checks the cycles that the answer returns, and computes the losses on another stream than main if asked to.
    """

    on_another_stream = False
    whole = 0  # cycles that `self.cycle` has given, with the identity pictures

    def cycle(self, *journey: Any, **named: Any) -> Cycle:
        cycle = super().cycle(*journey, **named)  # type: ignore[misc]  # the answer's, or a step's
        self.whole += cycle.same is not None
        return cycle

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        before, self.whole = Stream.timekeeper.current, 0
        cycles = super().cycles(journeys)  # type: ignore[misc]
        found = [type(cycle) for cycle in cycles] if isinstance(cycles, tuple | list) else kind(cycles)
        told = f"`cycles` must return two Cycles, A -> B -> A and B -> A -> B, not {found}: "
        require(found == [Cycle, Cycle], told + "run both cycles before you return tuple(cycles).")
        told = f"self.cycle gave {self.whole} cycles with identity pictures, and two are needed: "
        require(self.whole == 2, told + "call self.cycle(*journey), with all four fields, for each journey.")
        left = Stream.timekeeper.current
        told = f"torch.cuda.set_stream leaves {left.name} on for the code that follows: "
        require(left is before, told + f"set {before.name} again, or use `with torch.cuda.stream(...)`.")
        return cycles

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self.on_another_stream:
            return super().losses(player, batch)  # type: ignore[misc]
        outer, main = Stream(number=-1), Stream.timekeeper.current
        outer.name = "outer"
        outer.wait_stream(main)
        with outer:
            losses = super().losses(player, batch)  # type: ignore[misc]
        main.wait_stream(outer)
        return losses


def _recorded(step: Step, batch: dict[str, Tensor]) -> tuple[RaceRecorder, dict[str, Tensor]]:
    """`labcourse.races.record`; streams that it cannot follow are the answer's fault."""
    try:
        return record(lambda **batch: step.losses("generators", batch), step.model, **batch)
    except StreamError as error:
        raise WrongAnswer(str(error)) from error


@exercise()
def streams(answer: type) -> None:
    """Compares a class that runs the two cycles on two streams with the baseline, and checks the rules of streams.

    Args:
        answer: a class that overrides `cycles`. It is tried alone, and with "bf16".

    Raises:
        WrongAnswer: the losses differ, the cycles are not on two side streams, there is a race, nothing overlaps, the
            host waits, or the streams are not kept.
    """
    size = drawn(32, lambda random: random.choice((24, 28, 36)))
    seed = drawn(0, lambda random: random.randrange(2**31))
    real_a, real_b = (torch.rand(1, 3, size, size) * 2 - 1 for _ in range(2))
    batch = {"real_a": real_a, "real_b": real_b}
    for others in ([], ["bf16"]):
        step = make_step(small_model(seed), *others, emulate=True)
        right = step.losses("generators", batch)
        step.backward(torch.stack([*right.values()]).sum(), "generators")
        wanted = [cast(Tensor, weight.grad) for weight in step.players["generators"]]
        model = small_model(seed)
        with guarded(answer, if_it_fails="Leave __init__ out, and make the streams in cycles, once."):
            step = make_step(model, _Around, answer, *others, emulate=True)
        with guarded(answer, model, batch):
            recorder, losses = _recorded(step, batch)
            step.backward(torch.stack([*losses.values()]).sum(), "generators")
            gradients = [weight.grad for weight in step.players["generators"]]
            step.on_another_stream = True  # type: ignore[attr-defined]
            second, _ = _recorded(step, batch)
        clocks, made = recorder.clocks, recorder.clocks.made
        sides = [stream for stream in clocks.begun if stream is not clocks.main]
        in_class = any(isinstance(leaf, Stream) for leaf in tree_leaves(list(vars(answer).values())))
        pairs = itertools.combinations(sides, 2)
        overlap = any(clocks.begun[late][early] < clocks.of[early][early] for early, late in pairs)
        wrong = [name for name in right if not torch.allclose(losses[name], right[name], rtol=1e-4)]
        flows = all(
            got is not None and (got - one).abs().max() < 0.1 * one.abs().max()
            for got, one in zip(gradients, wanted, strict=True)
        )
        once_right, in_order = "the cycles need the step's autocast.", "return A -> B -> A first."
        for holds, message in (
            (not wrong, f"{', '.join(wrong)} differ from the baseline's: {once_right if others else in_order}"),
            (flows, "the losses are right, and the generators' gradients are not: is one cut off, with detach?"),
            (len(sides) > 0, "all work ran on main: launch each cycle in `with torch.cuda.stream(...)` of its own."),
            (len(sides) > 1, "only one side stream has work: give each cycle a side stream of its own."),
            (not in_class, "the streams are kept in the class, which every step shares: keep them in self."),
            (made == 2, f"{made} side streams were made at this step's first call, and two are needed, in self.side."),
            *((False, race.message) for race in recorder.races()),
            (not clocks.host, "the host waits, in a `synchronize` or for a value: use wait_stream instead."),
            (overlap, "nothing overlaps: one side stream begins when the other is done. Launch both first."),
        ):
            require(holds, ("with 'bf16': " if others else "") + message)
        again = "in a second call, where another stream, outer, is the current one"
        new = f"{again}, new streams are made: make them at the first call, and keep them in self."
        require(not second.clocks.made, new)
        for race in second.races():
            perhaps = "Perhaps `cycles` does not ask for torch.cuda.current_stream() in every call."
            raise WrongAnswer(f"{again}: {race.message} {perhaps}")


def _bars(rows: list[tuple]) -> DataFrame:
    return DataFrame(rows, columns=["lane", "what", "begin_ms", "end_ms"])


def _picture(random: Random) -> tuple[DataFrame]:
    """A timeline of some lanes, to `read_timeline`: lanes overlap, and half of the slow kernels run beside others."""
    rows = []
    for lane in random.sample(("main", "stream 1", "stream 2", "stream 3", "copies"), random.randrange(3, 5)):
        end = random.uniform(0, 60)
        for number in range(3):
            begin = end + random.uniform(5, 40)
            end = begin + random.uniform(40, 90)
            rows.append((lane, "kernels", begin, end))
            if number != 1:
                slow = random.uniform(begin, end - 20)
                rows.append((lane, "slow kernel", slow, slow + 20))
        rows.append((lane, "span of the step", 0, end))
    return (_bars(rows),)


TWO_LANES = [("main", "kernels", 0, 10), ("side", "kernels", 6, 16), ("side", "slow kernel", 8, 15)]
TWO_LANES += [("main", "kernels", 22, 26), ("main", "slow kernel", 23, 26)]


@formula(figure_times, [(_bars(TWO_LANES),), (paper_figure(),)], _picture)
def read_timeline(figure: DataFrame) -> Mistakes:
    """Compares ``answer(figure)`` with `labcourse.figure_times`, on the course paper's Figure 1 and on another one."""
    right, whole = figure_times(figure), busy(figure["begin_ms"].to_numpy(), figure["end_ms"].to_numpy())
    figure = figure[figure["what"] != "span of the step"]
    lasted, slow = figure["end_ms"] - figure["begin_ms"], figure["what"] == "slow kernel"
    wall = figure["end_ms"].max() - figure["begin_ms"].min()
    summed = lasted[~slow].sum()
    times, lanes = levels(*(figure[~slow][column].to_numpy() for column in ("begin_ms", "end_ms")))
    together = (np.diff(times) * (lanes[:-1] > 1)).sum()
    yield {"busy": whole}, "busy is the profiler's span, too: count the rows of kernels alone."
    yield {"counted_twice": together}, "counted_twice is how long two lanes run: three at once count three times."
    yield {"busy": summed}, "busy is the sum of the lanes: a time at which two of them run counts once."
    yield {"busy": lasted.sum()}, "busy is the sum of all rows: a time at which two lanes run counts once."
    yield {"busy": wall}, "busy is from the first row to the last: leave out the times at which all lanes are empty."
    slow_twice = lasted.sum() - right["busy"]
    yield {"counted_twice": slow_twice}, "counted_twice has the slow kernels again, which are parts of kernels' rows."
    yield {"counted_twice": summed}, "counted_twice is the sum of the lanes: by how much is it longer than busy?"
    yield {"counted_twice": -right["counted_twice"]}, "counted_twice is the sum of the lanes, less busy: not below 0."
    yield {"alone": lasted[slow].sum()}, "alone is the slow kernel's whole time: leave out what runs beside others."
    beside = lasted[slow].sum() - right["alone"]
    yield {"alone": beside}, "alone is the time beside others: what is left of the slow kernel's time?"
    yield {"alone": 0.0}, "alone is not 0: perhaps a slow kernel's own lane was asked, too. Take the *other* lanes'."
    yield None, "Take the union of the lanes, their sum less it, and what the slow kernel alone covers, in ms."
