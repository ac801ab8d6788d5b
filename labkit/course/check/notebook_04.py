"""Checks of notebook 04, without a GPU: two cycles on two streams, and the difference of two profiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pandas
import torch
from torch.utils._pytree import tree_leaves

from labkit.course.check.answers import (
    WrongAnswer,
    a_seed,
    drawn,
    exercise,
    expect,
    failing,
    kind,
    require,
    require_each,
)
from labkit.course.paper import growth as right_growth
from labkit.course.races import record
from labkit.models.cyclegan import Cycle, CycleGAN, Journey
from labkit.simulate.cuda_stubs import Stream
from labkit.variants.registry import SPEEDUPS, make_step


class ReturnsCycles:
    """Stands before an answer in the stack of a step's classes, and looks at the cycles it returns."""

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:  # noqa: D102
        cycles = super().cycles(journeys)  # type: ignore[misc]  # the answer's, or a step's
        pair = "`cycles` must return two Cycles, A -> B -> A and B -> A -> B"
        hint = "Is a `return` missing?" if cycles is None else "Run both cycles before you return tuple(cycles)."
        require(isinstance(cycles, tuple | list), f"{pair}, not {kind(cycles)}. {hint}")
        types = [type(cycle) for cycle in cycles]
        require(types == [Cycle, Cycle], f"{pair}, not {types}.")
        identity = "the identity pictures are missing: pass self.cycle the real picture of the other domain, too."
        require(all(cycle.same is not None for cycle in cycles), identity)
        return cycles


@exercise(SPEEDUPS["streams"])
def streams(answer: type) -> None:
    """Compares a class that runs the two cycles on two streams with the baseline, and checks the rules of streams.

    Args:
        answer: a class that overrides `cycles`. It is tried alone, and with "bf16".

    Raises:
        WrongAnswer: the losses differ, the cycles are not on two side streams, there is a race, nothing overlaps, the
            host waits, or the streams are not kept.
    """
    no_step = "no step can be made with your class: leave __init__ out, and make the streams in cycles, once."
    for others in ((), ("bf16",)):
        under = "with 'bf16': " if others else ""
        torch.manual_seed(drawn(0, a_seed))
        size = drawn(32, lambda random: random.choice((24, 28, 36)))
        model = CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)
        real_a, real_b = (torch.rand(1, 3, size, size) * 2 - 1 for _ in range(2))
        right = make_step(model, *others, emulate=True).losses("generators", {"real_a": real_a, "real_b": real_b})
        with failing((AssertionError, RuntimeError, TypeError), no_step):
            step = make_step(model, ReturnsCycles, answer, *others, emulate=True)
        recorder, losses = record(step, real_a, real_b)
        wrong = [name for name in right if not torch.allclose(losses[name], right[name], rtol=1e-4)]
        clocks = recorder.clocks
        sides = [stream for stream in clocks.begun if stream is not clocks.main]
        in_class = any(isinstance(leaf, Stream) for leaf in tree_leaves(list(vars(answer).values())))
        same = "run the same two journeys through self.cycle, and return A -> B -> A first."
        on_main = (
            "all work ran on main: launch each cycle in `with torch.cuda.stream(...)`, on its own side stream. "
            "If you test for CUDA, ask journeys[0].real.is_cuda: here tensors lie on the CPU, but say yes."
        )
        require_each(
            (not wrong, f"{', '.join(wrong)} differ from the baseline's: {same}"),
            (len(sides) > 0, on_main),
            (len(sides) > 1, "only one side stream has work: give each cycle a side stream of its own."),
            (not in_class, "the streams are kept in the class, which every step shares: keep them in self."),
            (clocks.made == 2, f"{clocks.made} side streams were made, and two are needed: one for each cycle."),
            where=under,
        )
        for race in recorder.races():
            raise WrongAnswer(under + race.message)
        pairs = itertools.combinations(sides, 2)
        overlap = any(clocks.begun[late][early] < clocks.of[early][early] for early, late in pairs)
        after = f"{under}{sides[1].name} begins only when {sides[0].name} has finished, so nothing overlaps: let both "
        require(overlap, f"{after}wait for main and do their work, and only then let main wait for each of them.")
    step = make_step(model, answer)
    first, again = (record(step, real_a, real_b)[0].clocks for _ in range(2))
    new = "the second call makes new streams: make them at the first call, and keep them in self."
    waits = "the host waits, in a `synchronize` or for a value, and launches nothing: wait_stream lets the GPU wait."
    require(not first.host, waits)
    require(not again.made, new)


# The rows of two small profiles: calls, own and total us on the GPU, before and after. A row that the profiler did not
# print is None.
PROFILED: dict[str, tuple[tuple[int, float, float] | None, tuple[int, float, float] | None]] = {
    "aten::convolution_backward": ((12, 6000.0, 6600.0), (12, 9000.0, 9700.0)),
    "aten::cudnn_convolution": ((10, 3000.0, 3300.0), (10, 3200.0, 3400.0)),
    "aten::cudnn_convolution_transpose": ((2, 800.0, 900.0), (2, 900.0, 1000.0)),
    "aten::add": ((6, 400.0, 500.0), (6, 430.0, 540.0)),
    "aten::add_": ((20, 700.0, 700.0), (20, 650.0, 650.0)),
    "aten::leaky_relu_": (None, (4, 250.0, 250.0)),
    "aten::fill_": ((9, 300.0, 300.0), None),
    "void dgrad2d_kernel<float>": (None, (12, 5000.0, 5000.0)),
    "void nchwToNhwcKernel<float>": ((30, 2000.0, 2000.0), (30, 2300.0, 2300.0)),
    "ProfilerStep*": ((2, 14000.0, 14000.0), (2, 17000.0, 17000.0)),
}
TOTAL = (
    "That is the total time, with the operators that it called: they have rows of their own, so their growth would "
    "count twice. Take the own time, self_cuda_us."
)
NO_OPERATORS = (
    "your answer has rows that are not operators: a kernel's time is already in the row of the operator that launched "
    'it, and a range has that of all. Take the names that begin with "aten::".'
)
LACKING = (
    "your answer has {}, which one of the tables lacks. A table has 100 rows only, so a missing operator is not one "
    "that took no time: leave it out."
)


@exercise(right_growth)
def growth(answer: Callable[[pandas.DataFrame, pandas.DataFrame, int], Mapping[str, float]]) -> None:
    """Compares ``answer(before, after, steps)`` with `labkit.course.growth`, on two small tables of a profiler."""
    factors = drawn([1.0] * len(PROFILED), lambda random: [random.uniform(0.6, 1.6) for _ in PROFILED])
    steps = drawn(2, lambda random: random.randrange(3, 9))
    before, after = (_profile(side, factors) for side in (0, 1))
    given = before.copy(), after.copy()
    with failing(KeyError, f"there is no such column or row: the columns are {', '.join(before)}"):
        got = answer(*given, steps)
    changed = "a table you were given was changed: work on a copy, or on its columns."
    require(all(map(pandas.DataFrame.equals, given, (before, after))), changed)
    names = set(got) if isinstance(got, Mapping) else set()
    lacking = sorted(names - (set(before["name"]) & set(after["name"])))
    require_each(
        (not lacking, LACKING.format(", ".join(map(str, lacking)))),
        (all(name.startswith("aten::") for name in names), NO_OPERATORS),
    )
    right = right_growth(before, after, steps)

    def in_ms(name: str, column: str = "self_cuda_us") -> float:
        us = [table.set_index("name")[column][name] for table in (before, after)]
        return (us[1] - us[0]) / 1e3 / steps

    own = [table.set_index("name")["self_cuda_us"] for table in (before, after)]
    of_steps = "Those are all steps together: how much longer does *one* step take?"
    expect(
        got,
        right,
        [
            ({name: -ms for name, ms in right.items()}, "The sign is turned round: growth is after - before."),
            ({name: 1e3 * ms for name, ms in right.items()}, "Those are microseconds: a millisecond has 1000 of them."),
            ({name: steps * ms for name, ms in right.items()}, of_steps),
            ({name: in_ms(name, "cuda_total_us") for name in right}, TOTAL),
            ({name: (own[1] / own[0])[name] for name in right}, "That is a ratio: how many milliseconds is it?"),
        ],
        "Take each operator's own GPU time after, minus that before, in milliseconds of one step.",
        f"two profiles of {steps} steps",
    )


def _profile(side: int, factors: Sequence[float]) -> pandas.DataFrame:
    rows = [
        (name, calls_and_us[0], factor * calls_and_us[1], factor * calls_and_us[2])
        for (name, both), factor in zip(PROFILED.items(), factors, strict=True)
        if (calls_and_us := both[side]) is not None
    ]
    return pandas.DataFrame(rows, columns=["name", "calls", "self_cuda_us", "cuda_total_us"])
