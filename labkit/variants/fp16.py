"""fp16: the networks compute in float16, and losses are scaled so that small gradients survive it."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.models.step import Batch
from labkit.variants import SpeedUp


class FP16(SpeedUp):
    """Runs the losses under autocast to float16, scales each loss, and unscales before each optimiser's step.

    Differs from the baseline in four seams. `losses`: autocast, for the reasons that `bf16` gives. `backward`: the loss
    times the scale, since float16 flushes numbers below 6e-8 to zero. `update`: through the scaler, which unscales
    and leaves out the step of a player whose gradients overflowed, of that player alone. `run`: the scale is
    adapted once for the whole step, after both players. Source: Micikevicius et al. 2018, section 3.2.

    Improves: compute time and memory, as `bf16` does, on older GPUs too. Does not help where the host is the
    bottleneck. Adam is fused: the plain one would wait for the device to hear whether to step.
    """

    name = "fp16"
    changes = "convolutions compute in float16 (autocast); losses are scaled"
    improves = "compute, memory"
    needs = "a GPU, or a CPU with AVX512-FP16"
    tolerance = "16-bit"
    computes_in = torch.float16
    init_scale = 256.0  # PyTorch's 65536 overflows on this model's first steps, each of which is then lost

    def build(self, betas: tuple[float, float]) -> dict[str, torch.optim.Optimizer]:
        weight = next(self.model.parameters())
        self.scaler = torch.amp.GradScaler(weight.device.type, init_scale=self.init_scale)
        self.scaler.scale(weight.new_zeros(()))  # makes its tensors now: the first step does the same as all others
        return super().build(betas)

    def adam_options(self) -> dict[str, bool]:
        return {**super().adam_options(), "fused": True}

    def losses(self, player: str, batch: Batch) -> dict[str, Tensor]:
        with torch.autocast(batch["real_a"].device.type, self.computes_in):
            return super().losses(player, batch)

    def backward(self, loss: Tensor, player: str) -> None:
        super().backward(self.scaler.scale(loss), player)

    def update(self, player: str) -> None:
        self.scaler.step(self.optimizers[player])
        self.optimizers[player].zero_grad()

    def run(self, batch: Batch) -> dict[str, Tensor]:
        losses = super().run(batch)
        self.scaler.update()
        return losses

    def state_dict(self) -> dict:
        return {**super().state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        if "scaler" in state:  # not if the state comes from a step without fp16
            self.scaler.load_state_dict(state["scaler"])
