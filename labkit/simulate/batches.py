"""A step at any batch size, from two recordings: its work grows linearly with the batch, and its memory nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from labkit.simulate.operators import LiveBytes, Operator, Recorder, meta_step


@dataclass(frozen=True)
class BatchSizes:
    """One model and picture size at every batch size; from `any_batch_size`.

    Attributes:
        size: pixels of a picture's side.
        two, four: the operators of a step at batch 2, and at batch 4. (At batch 1 there are some views more.)
        memory: bytes that a step holds at most, at batch 2 and at batch 4.
    """

    size: int
    two: Sequence[Operator]
    four: Sequence[Operator]
    memory: tuple[int, int]

    def operators(self, batch_size: int) -> list[Operator]:
        """The operators at this batch size, with its FLOPs and bytes; their shapes stay those of batch 2."""
        more = batch_size - 2
        return [
            replace(
                two,
                flops=two.flops + more * (four.flops - two.flops) // 2,
                bytes_moved=two.bytes_moved + more * (four.bytes_moved - two.bytes_moved) // 2,
            )
            for two, four in zip(self.two, self.four, strict=True)
        ]

    def bytes_held(self, batch_size: int) -> int:
        """What a step at this batch size holds at most; COUNTED, see `labkit.simulate.step_memory`."""
        two, four = self.memory
        return two + (batch_size - 2) * (four - two) // 2


def any_batch_size(model: nn.Module, *speedups: str | type, size: int = 256) -> BatchSizes:
    """Records a step at two batch sizes; arguments and errors as for `labkit.simulate.step_operators`."""
    (two, held_at_two), (four, held_at_four) = (_recorded(model, speedups, batch, size) for batch in (2, 4))
    return BatchSizes(size, two, four, (held_at_two, held_at_four))


def _recorded(model: nn.Module, speedups: tuple, batch_size: int, size: int) -> tuple[list[Operator], int]:
    """What `step_operators` and `step_memory` give, in one go."""
    with LiveBytes() as live, meta_step(model, *speedups, batch_size=batch_size, size=size) as (step, batch, schedule):
        step(*batch)
        step(*batch)
        held = live.peak  # before the recorder, which keeps all memory alive to tell it apart
        with Recorder(schedule) as recorder:
            step(*batch)
    return recorder.operators, held
