"""accumulate: a batch in several parts, one after the other, whose gradients add up to the whole batch's."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.models.step import Batch
from labkit.variants import SpeedUp


class Accumulate(SpeedUp):
    """Computes losses and gradients of `parts` parts of the batch in turn, then updates once.

    Differs from the baseline in `learn`, which takes the parts in turn and sums their losses, and in `backward`, which
    weights each part's loss by its share of the batch, since a loss is a mean over pictures. Parts may be of unequal
    size. It is exact as long as no layer looks beyond one picture, so not with batch norm. The pools draw for one part
    after the other (`inputs`), so that they give back the same pictures.

    Improves: memory for activations, which falls to one part's, so that larger batches fit. It does not make a step
    faster: smaller batches fill the device less, and there are more launches.
    """

    name = "accumulate"
    changes = "the batch in parts (two, or accumulate=...), one update"
    improves = "memory"
    needs = "a batch of at least as many pictures as parts; not batch norm"
    batch_norm_would = "take its mean over a part instead of the batch"
    parts = 2

    def inputs(self, real_a: Tensor, real_b: Tensor) -> Batch:
        if len(real_a) < self.parts:
            raise LabkitError(
                f"accumulate={self.parts}: a batch of {len(real_a)} cannot be split: accumulate={len(real_a)} at most."
            )
        of_part, halves = super().inputs, (real_a.tensor_split(self.parts), real_b.tensor_split(self.parts))
        parts = [of_part(*pictures) for pictures in zip(*halves, strict=True)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def run(self, batch: Batch) -> dict[str, Tensor]:
        parts = zip(*(tensor.tensor_split(self.parts) for tensor in batch.values()), strict=True)
        self.batches = [dict(zip(batch, part, strict=True)) for part in parts]
        return super().run(batch)

    def learn(self, player: str, batch: Batch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = {}
        for part in self.batches:  # each keeps its fakes for the next player
            self.share = len(part["real_a"]) / len(batch["real_a"])
            for name, loss in super().learn(player, part).items():
                losses[name] = self.share * loss + losses.get(name, 0)
        return losses

    def backward(self, loss: Tensor, player: str) -> None:
        super().backward(self.share * loss, player)
