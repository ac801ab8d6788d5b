"""Checks of notebook 04: the two cycles on two CUDA streams, without a GPU."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from labkit.check.answers import WrongAnswer, passed, require
from labkit.check.races import record
from labkit.models.cyclegan import CycleGAN
from labkit.steps.making import make_step
from labkit.steps.step import Cycle


class ReturnsCycles:
    """Goes round an answer and looks at what it returns."""

    def both_cycles(self, model: nn.Module, real_a: Tensor, real_b: Tensor) -> tuple[Cycle, Cycle]:  # noqa: D102
        cycles = super().both_cycles(model, real_a, real_b)
        require(
            cycles is not None and [type(cycle) for cycle in cycles] == [Cycle, Cycle],
            "both_cycles must return two Cycles, A -> B -> A and B -> A -> B. Is a `return` missing?",
        )
        require(
            all(cycle.same is not None for cycle in cycles),
            "the identity pictures are missing: hand self.one_cycle the real picture of the other domain as well.",
        )
        return cycles


def streams(answer: type) -> None:
    """Holds a class that runs the two cycles on two streams to the baseline and to the rules of streams.

    Args:
        answer: overrides `both_cycles`; it is tried alone, and with "bf16".

    Raises:
        WrongAnswer: the losses differ, the cycles are not on two side streams, there is a race, or nothing overlaps.
    """
    for others in ((), ("bf16",)):
        under = "with 'bf16': " if others else ""
        torch.manual_seed(0)
        model = CycleGAN(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)
        real_a, real_b = (torch.rand(1, 3, 32, 32) * 2 - 1 for _ in range(2))
        right = make_step(model, *others).losses("generators", {"real_a": real_a, "real_b": real_b})
        recorder, losses = record(make_step(model, ReturnsCycles, answer, *others), real_a, real_b)
        wrong = [name for name in right if not torch.allclose(losses[name], right[name], rtol=1e-4)]
        require(
            not wrong,
            f"{under}{', '.join(wrong)} differ from the baseline's: run the same two journeys through self.one_cycle, "
            "and return A -> B -> A first.",
        )
        sides = [stream for stream in recorder.begun if stream is not recorder.main]
        require(
            len(sides) >= 2,
            f"{under}all work ran on {' and '.join(stream.name for stream in recorder.begun)}: give each cycle a side "
            "stream of its own, in `with torch.cuda.stream(...)`. Whether there is CUDA, ask real_a.is_cuda: "
            "here tensors lie on the CPU, but say yes.",
        )
        for race in recorder.races():
            raise WrongAnswer(under + race.message)
        require(
            any(recorder.begun[late][early] < early.clock[early] for early, late in itertools.combinations(sides, 2)),
            f"{under}{sides[1].name} begins only when {sides[0].name} has finished, so nothing overlaps: let both wait "
            "for main and do their work, and only then let main wait for the one and the other.",
        )
    passed("streams")
