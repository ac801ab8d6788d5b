"""Checks of notebook 04, without a GPU: two cycles on two streams, two profiles' difference, and a timeline's times."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import cast

import torch
from pandas import DataFrame
from torch import Tensor

from labcourse import observe
from labcourse.check.answers import Mistakes, ask, drawn, exercise, formula, require
from labcourse.figure_1 import figure_times, paper_figure
from labcourse.figure_1 import without_kernel as right_without_kernel
from labcourse.paper import growth as right_growth
from labkit.variants.registry import SPEEDUPS, make_step


@exercise(SPEEDUPS["streams"])
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
        step = make_step(observe.small_model(seed), *others, emulate=True)
        right = step.losses("generators", batch)
        step.backward(torch.stack([*right.values()]).sum(), "generators")
        seen = ask(answer, seed, real_a, real_b, others, through=observe.streams_used)
        losses, sides, (made, made_again), (races, later_races) = (
            seen[name] for name in ("losses", "sides", "made", "races")
        )
        wrong = [name for name in right if not torch.allclose(losses[name], right[name], rtol=1e-4)]
        wanted = [cast(Tensor, weight.grad) for weight in step.players["generators"]]
        pairs = zip(seen["gradients"], wanted, strict=True)
        flows = all(got is not None and (got - one).abs().max() < 0.1 * one.abs().max() for got, one in pairs)
        for holds, message in (
            (not wrong, f"{', '.join(wrong)} differ from the baseline's: return A -> B -> A first."),
            (flows, "the losses are right, and the generators' gradients are not: is one cut off, with detach?"),
            (sides > 0, "all work ran on main: launch each cycle in `with torch.cuda.stream(...)` of its own."),
            (sides > 1, "only one side stream has work: give each cycle a side stream of its own."),
            (not seen["in_class"], "the streams are kept in the class, which every step shares: keep them in self."),
            (made == 2, f"{made} side streams were made at this step's first call, and two are needed, in self.side."),
            *((False, race) for race in races),
            (not seen["host_waits"], "the host waits, in a `synchronize` or for a value: use wait_stream instead."),
            (seen["overlap"], "nothing overlaps: one side stream begins when the other is done. Launch both first."),
        ):
            require(holds, ("with 'bf16': " if others else "") + message)
        again = "in a second call, where another stream, outer, is the current one"
        require(not made_again, f"{again}, new streams are made: make them at the first call, and keep them in self.")
        perhaps = "Perhaps `cycles` does not ask for torch.cuda.current_stream() in every call."
        require(not later_races, f"{again}: {' '.join(later_races[:1])} {perhaps}")


# Rows of two small profiles: own and total us on the GPU, before and after; none if the profiler did not print them.
PROFILED: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    "aten::convolution_backward": ((6000.0, 6600.0), (9000.0, 9700.0)),
    "aten::cudnn_convolution": ((3000.0, 3300.0), (3200.0, 3400.0)),
    "aten::add_": ((700.0, 700.0), (650.0, 650.0)),
    "aten::leaky_relu_": ((), (250.0, 250.0)),
    "aten::fill_": ((300.0, 300.0), ()),
    "void nchwToNhwcKernel<float>": ((2000.0, 2000.0), (2300.0, 2300.0)),
    "ProfilerStep*": ((14000.0, 14000.0), (17000.0, 17000.0)),
}


def _profiles(random: Random) -> tuple[DataFrame, DataFrame, int]:
    """Two profiles of some steps, to `growth`."""
    factors = {name: random.uniform(0.6, 1.6) for name in PROFILED}

    def table(side: int) -> DataFrame:
        rows = [(name, *(factors[name] * us for us in both[side])) for name, both in PROFILED.items() if both[side]]
        return DataFrame(rows, columns=["name", "self_cuda_us", "cuda_total_us"])

    return table(0), table(1), random.randrange(3, 9)


@formula(right_growth, [_profiles(Random(0))], _profiles)
def growth(before: DataFrame, after: DataFrame, steps: int) -> Mistakes:
    """Compares ``answer(before, after, steps)`` with `labcourse.growth`, on two small tables of a profiler."""
    right, own = right_growth(before, after, steps), [one.set_index("name")["self_cuda_us"] for one in (before, after)]
    totals = [table.assign(self_cuda_us=table["cuda_total_us"]) for table in (before, after)]
    yield right_growth(after, before, steps), "The sign is the wrong way around: growth is after - before."
    yield {name: 1e3 * ms for name, ms in right.items()}, "Those are microseconds: a millisecond has 1000 of them."
    yield right_growth(before, after, 1), "Those are all steps together: how much longer does *one* step take?"
    yield (
        right_growth(totals[0], totals[1], steps),
        "That is the total time, with that of other rows: take self_cuda_us.",
    )
    yield {name: (own[1] / own[0])[name] for name in right}, "That is a ratio: how many milliseconds is it?"
    yield None, "Take each operator's own GPU time after, minus that before, in milliseconds of one step."


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
    return (_bars(rows),)


TWO_LANES = [("main", "kernels", 0, 10), ("side", "kernels", 6, 16), ("side", "slow kernel", 8, 15)]
TWO_LANES += [("main", "kernels", 22, 26), ("main", "slow kernel", 23, 26)]


def _seen(figure: DataFrame) -> DataFrame:
    return figure[figure["what"].isin(["kernels", "slow kernel"])].reset_index(drop=True)


@formula(figure_times, [(_bars(TWO_LANES),), (_seen(paper_figure()),)], _picture)
def read_timeline(figure: DataFrame) -> Mistakes:
    """Compares ``answer(figure)`` with `labcourse.figure_times`, on the course paper's Figure 1 and on another one."""
    right, lasted = figure_times(figure), figure["end_ms"] - figure["begin_ms"]
    slow = figure["what"] == "slow kernel"
    wall = figure["end_ms"].max() - figure["begin_ms"].min()
    summed = lasted[~slow].sum()
    yield {"busy": summed}, "busy is the sum of the lanes: a time at which two of them run counts once."
    yield {"busy": lasted.sum()}, "busy is the sum of all rows: a time at which two lanes run counts once."
    yield {"busy": wall}, "busy is the whole picture: leave out the times at which all lanes are empty."
    slow_twice = lasted.sum() - right["busy"]
    yield (
        {"counted_twice": slow_twice},
        "counted_twice adds up all rows, and a slow kernel is a part of a row of kernels.",
    )
    yield {"counted_twice": summed}, "counted_twice is the sum of the lanes: by how much is it longer than busy?"
    yield {"alone": lasted[slow].sum()}, "alone is the slow kernel's whole time: leave out what runs beside others."
    beside = lasted[slow].sum() - right["alone"]
    yield {"alone": beside}, "alone is the time beside others: what is left of the slow kernel's time?"
    yield {"alone": 0.0}, "alone is not 0: perhaps a slow kernel's own lane was asked, too. Take the *other* lanes'."
    yield (
        None,
        "Take the union of all rows, the sum of the lanes less it, and what the slow kernel alone covers.",
    )


def _kernel(random: Random) -> tuple[float, float, tuple[float, float]]:
    before = random.uniform(5, 20), random.uniform(25, 50)
    return random.uniform(400, 900), random.uniform(80, 150), before


@formula(right_without_kernel, [(809.3, 105.9, (2.0, 26.0)), _kernel(Random(0))], _kernel)
def without_kernel(step_ms: float, kernel_ms: float, before_ms: tuple[float, float]) -> Mistakes:
    """Compares ``answer(step_ms, kernel_ms, before_ms)`` with `labcourse.without_kernel`."""
    right = right_without_kernel(step_ms, kernel_ms, before_ms)
    gone = step_ms - kernel_ms
    swapped = {"least": right["most"], "most": right["least"]}
    yield swapped, "least and most are exchanged: the more the layer took before, the longer the step."
    yield {"most": gone}, "The layer does not vanish: add what it took before."
    yield {"least": gone - before_ms[1]}, "What the layer took before is work that stays: add it, do not take it off."
    yield (
        {"least": kernel_ms - before_ms[1]},
        "That is by how much the layer grew: how long is the step without it?",
    )
    ratios = {key: ms / step_ms for key, ms in right.items()}
    yield ratios, "Those are ratios: how many milliseconds would the step take?"
    yield None, "Take the kernel's time off the step, and put what the layer took before in its place: twice."
