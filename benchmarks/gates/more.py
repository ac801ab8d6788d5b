"""Questions that the first table raised: what acts only in a full pool, aliased losses, and controls.

    python -m benchmarks.gates.more NAME ...    judges these, in this process
"""

from __future__ import annotations

import sys
import time
import warnings

import torch

import labkit
from benchmarks.gates.steps import PoolSeedNotLoaded, SameDraw


class PoolNeverGives(labkit.Step):
    "Wrong: the pool is filled, but the discriminators always see the newest fakes."

    def pooled(self, pool, fakes, batch):
        super().pooled(pool, fakes, batch)
        return fakes


class LossesAttached(labkit.Step):
    "Wrong by the contract: losses are not detached, so who keeps them keeps their graphs' metadata and may differentiate."

    def learn(self, player, batch):
        losses = self.losses(player, batch)
        self.backward(sum(losses.values()), player)
        return losses


class Nothing16(labkit.Step):
    "Right: nothing but what is below it."

    def run(self, batch):
        return super().run(batch)


class SingleHalved(labkit.Step):
    "Wrong: of a single picture (an incomplete last batch), the cycle's losses are halved."

    def generators(self, batch):
        losses = super().generators(batch)
        if len(batch["real_a"]) == 1:
            losses["cycle_A"], losses["cycle_B"] = losses["cycle_A"] / 2, losses["cycle_B"] / 2
        return losses


MORE = {  # class, speed-ups below, size of the pool, batch
    "PoolNeverGives": (PoolNeverGives, (), 50, 2),
    "PoolNeverGives1": (PoolNeverGives, (), 50, 1),
    "PoolNeverGives of 4": (PoolNeverGives, (), 4, 2),
    "SameDraw of 4": (SameDraw, (), 4, 1),
    "PoolSeedNotLoaded of 4": (PoolSeedNotLoaded, (), 4, 2),
    "LossesAttached": (LossesAttached, (), 50, 2),
    "Nothing16": (Nothing16, ("bf16",), 50, 2),
    "SingleHalved": (SingleHalved, (), 50, 2),
}


def judge(name: str) -> None:
    (given, on, pool, n), begin = MORE[name], time.perf_counter()

    def model() -> labkit.CycleGAN:
        return labkit.CycleGAN("resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4, pool_size=pool)

    steps = {
        "baseline": lambda: labkit.make_step(model()),
        "given": lambda: labkit.make_step(model(), given, *on, emulate=True),
    }
    torch.manual_seed(1)
    batch = tuple(torch.rand(n, 3, 48, 48) * 2 - 1 for _ in range(2))
    row = labkit.compare(steps, batch, rounds=6, warmup=1, limit_s=1).loc["given"]
    print(f"{name:24} {row['verdict']:15} {time.perf_counter() - begin:4.0f} s  {row['why']}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for given in sys.argv[1:] or MORE:
        judge(given)
