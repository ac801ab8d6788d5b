"""streams: the two cycles on two CUDA streams, as the course paper tried it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.models.cyclegan import Cycle, CycleGANStep, Journey
from labkit.models.model import Model
from labkit.variants import SpeedUp, no_shared_casts


class Streams(SpeedUp, CycleGANStep):
    """Runs A -> B -> A on one CUDA stream and B -> A -> B on another.

    Differs from the baseline in `cycles`. Three things keep it right. Each stream waits for the main
    one before it starts (its inputs and the weights must be there), the main one waits for both before it continues,
    and the pictures that come back are marked as in use on the main stream, or their memory could be handed out again
    too early. Under 16-bit autocast each stream casts the weights for itself: autocast's shared copy would be made on
    one stream, read on the other without waiting, and freed in the backward pass while a stream still reads it.

    Improves: idle time between kernels, if kernels leave multiprocessors free and the host launches fast enough to fill
    two queues. Does not help where one stream keeps the device busy (large batches), nor where the host is the
    bottleneck: the launches are as many as before.
    """

    name = "streams"
    changes = "the two cycles run on two CUDA streams"
    improves = "idle"
    needs = "CycleGAN; a GPU, elsewhere it does nothing; not batch norm"
    batch_norm_would = "update its running statistics from both streams"

    side: tuple[torch.cuda.Stream, ...] = ()  # made at the first step

    @staticmethod
    def why_inactive(model: Model) -> str | None:
        return None if next(model.parameters()).is_cuda else "there are no CUDA streams here"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "side": ()}  # a copy makes streams of its own

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        device = journeys[0].real.device
        if not journeys[0].real.is_cuda:
            return super().cycles(journeys)
        if not self.side:
            self.side = tuple(torch.cuda.Stream(device) for _ in journeys)
            # Both cycles add to the gradients of the same weights, on two streams: PyTorch would warn of it.
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        main = torch.cuda.current_stream(device)
        cycles = []
        for stream, journey in zip(self.side, journeys, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream), no_shared_casts(device.type):
                cycles.append(self.cycle(*journey))
        for stream, cycle in zip(self.side, cycles, strict=True):
            main.wait_stream(stream)
            for pictures in cycle:
                if pictures is not None:
                    pictures.record_stream(main)
        return cycles
