"""accumulate: a batch in several parts, one after the other, whose gradients add up to the whole batch's."""

from __future__ import annotations

from torch import Tensor, nn

from labkit.errors import LabkitError
from labkit.variants.common import SpeedUp, has_batch_norm


class Accumulate(SpeedUp):
    """Computes losses and gradients of `parts` parts of the batch in turn, then updates once.

    Differs from the baseline in two seams. `learn`: the parts in turn, their losses summed. `backward`: each part's
    loss is weighted by its share of the batch, since a loss is a mean over pictures; parts may be of unequal size.
    It is exact as long as no layer looks beyond one picture, so not with batch norm. The pools draw for one picture
    after the other, so that they give back the same ones.

    Moves: memory for activations, to one part's, so that batches fit which would not. It does not make a step
    faster: smaller batches fill the device less, and there are more launches.
    """

    name = "accumulate"
    place = 10
    seam = "check, learn, backward"
    changes = "the batch in parts (two, or accumulate=...), one update"
    moves = "memory"
    needs = "a batch of at least as many pictures as parts; not batch norm"
    tolerance = "exact"
    parts = 2

    @staticmethod
    def unsuited(model: nn.Module) -> str | None:
        if has_batch_norm(model):
            return "batch norm would take its mean over a part instead of the batch: use instance norm"
        return None

    @staticmethod
    def untried(model: nn.Module) -> str:
        return "it saves memory, not time"

    def check(self, real_a: Tensor, real_b: Tensor) -> None:
        super().check(real_a, real_b)
        if len(real_a) < self.parts:
            raise LabkitError(
                f"accumulate={self.parts}: a batch of {len(real_a)} cannot be split into {self.parts} parts. "
                f"Use larger batches, or make_step(..., accumulate={len(real_a)})."
            )

    def learn(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if "parts" not in batch:  # the first player's; the fakes it leaves in each part are for the next player
            halves = (batch[name].tensor_split(self.parts) for name in ("real_a", "real_b"))
            batch["parts"] = [{"real_a": real_a, "real_b": real_b} for real_a, real_b in zip(*halves, strict=True)]
        losses = {}
        for part in batch["parts"]:
            self.share = len(part["real_a"]) / len(batch["real_a"])
            for name, loss in super().learn(player, part).items():
                losses[name] = losses.get(name, 0) + self.share * loss
        return losses

    def backward(self, loss: Tensor, player: str) -> None:
        super().backward(self.share * loss, player)
