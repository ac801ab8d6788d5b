"""bf16: the networks compute in bfloat16 where that is safe, weights and optimiser stay in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.models.model import Model
from labkit.models.step import Batch
from labkit.variants import SpeedUp


class BF16(SpeedUp):
    """Runs the losses under autocast to bfloat16.

    Differs from the baseline in one seam, `losses`. Autocast surrounds the losses only: it keeps a cast copy of every
    weight until it ends, so one that stayed open from step to step would continue with weights from before.

    Improves: compute time, by up to the ratio of the device's 16-bit to 32-bit rate, and memory for activations, to
    half. Does not help where the host is the bottleneck: casting adds launches. Needs hardware that computes in
    bfloat16: NVIDIA GPUs from Ampere (8.0) on. A T4 only emulates it, so use fp16 there. Processors without
    AVX512-BF16 or AMX emulate it, too, several times slower than float32.
    """

    name = "bf16"
    changes = "convolutions compute in bfloat16 (autocast)"
    improves = "compute, memory"
    needs = "a GPU of compute capability 8.0, or a CPU with AVX512-BF16 or AMX"
    tolerance = "16-bit"
    computes_in = torch.bfloat16
    excludes = {"fp16": "each sets the type that convolutions compute in"}

    @classmethod
    def why_unsuited(cls, model: Model) -> str | None:
        on_gpu = next(model.parameters()).is_cuda
        if on_gpu and not torch.cuda.is_bf16_supported(including_emulation=False):
            return f"{torch.cuda.get_device_name()} only emulates bfloat16, which is slow: use 'fp16' on it"
        return super().why_unsuited(model)

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:
        with torch.autocast(batch["real_a"].device.type, self.computes_in):
            return super().losses(player, batch)
