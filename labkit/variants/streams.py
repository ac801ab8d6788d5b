"""streams: the two cycles on two CUDA streams, as the course paper tried it."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from labkit.step import Cycle
from labkit.variants.common import SpeedUp, has_batch_norm, without_cycles


class Streams(SpeedUp):
    """Runs A -> B -> A on one CUDA stream and B -> A -> B on another.

    Differs from the baseline in one seam, `both_cycles`. Three things keep it right. Each stream waits for the main
    one before it starts (its inputs and the weights must be there), the main one waits for both before it goes on,
    and the pictures that come back are marked as in use on the main stream, or their memory could be handed out again
    too early. Under 16-bit autocast each use casts its weights anew: autocast's one copy for all would be made on one
    stream, read on the other without waiting, and freed in the backward pass while a stream still reads it.

    Moves: idle time between kernels, if kernels leave multiprocessors free and the host launches fast enough to fill
    two queues. Does not help where one stream keeps the device busy (large batches), nor where the host is the
    bottleneck: the launches are as many as before.
    """

    name = "streams"
    place = 30
    seam = "both_cycles"
    changes = "the two cycles run on two CUDA streams"
    moves = "idle"
    needs = "CycleGAN; a GPU, elsewhere it does nothing; not batch norm"
    tolerance = "exact"

    side: tuple[torch.cuda.Stream, ...] | None = None  # made at the first step

    @staticmethod
    def unsuited(model: nn.Module) -> str | None:
        if has_batch_norm(model):
            return "batch norm's running statistics would be updated from two streams at once: use instance norm"
        return without_cycles(model)

    @staticmethod
    def inactive(model: nn.Module) -> str | None:
        return None if next(model.parameters()).is_cuda else "there are no CUDA streams here"

    def both_cycles(self, model: nn.Module, real_a: Tensor, real_b: Tensor) -> tuple[Cycle, Cycle]:
        if not real_a.is_cuda:
            if self.side is None:
                self.side = ()
                warnings.warn("streams: no CUDA streams here, the cycles run one after the other", stacklevel=2)
            return super().both_cycles(model, real_a, real_b)
        if self.side is None:
            self.side = (torch.cuda.Stream(real_a.device), torch.cuda.Stream(real_a.device))
        main = torch.cuda.current_stream(real_a.device)
        other_b, other_a = (real_b, real_a) if model.lambda_identity else (None, None)
        journeys = ((model.G_A, model.G_B, real_a, other_b), (model.G_B, model.G_A, real_b, other_a))
        cycles = []
        for stream, journey in zip(self.side, journeys, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream), no_shared_casts(real_a.device.type):
                cycles.append(self.one_cycle(*journey))
        for stream, cycle in zip(self.side, cycles, strict=True):
            main.wait_stream(stream)
            for pictures in cycle:
                if pictures is not None:
                    pictures.record_stream(main)
        return tuple(cycles)


def no_shared_casts(device: str) -> AbstractContextManager:
    """Autocast as it is on this type of device ("cuda"), on or off, but without its cache of cast weights."""
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, torch.get_autocast_dtype(device), cache_enabled=False)
