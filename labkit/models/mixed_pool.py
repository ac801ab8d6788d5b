"""A pool for pictures of different sizes, as `--preprocess none` and `scale_width` give them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.errors import LabkitError
from labkit.models.pool import Draw, Draws, Pool


class MixedPool(Pool):
    """A pool whose pictures may differ in size, as in the reference's list; they come one by one.

    It keeps them as they are, so that its exchange follows the latest draw on the host and cannot be recorded into a
    CUDA graph.
    """

    latest: Draw

    def __init__(self, size: int = 50, seed: int = 0):
        super().__init__(size, seed)
        self.kept: dict[int, Tensor] = {}  # by slot

    @classmethod
    def like(cls, pool: Pool) -> MixedPool:
        """An empty pool of the same size that draws as `pool` would; `pool` itself if it is of this kind."""
        if isinstance(pool, cls):
            return pool
        mixed = cls(pool.size)
        mixed.random = pool.random
        return mixed

    def draw(self, n: int, *shape: int) -> Draws:
        """Decides for one picture, of any shape.

        Raises:
            LabkitError: `n` is not 1.
        """
        if n != 1:
            raise LabkitError(f"a batch of {n}: this pool keeps pictures of different sizes. Give batches of 1.")
        self.drawn_for = None
        draws = super().draw(n, *shape)
        (self.latest,) = draws
        return draws

    def exchange(self, pictures: Tensor, draws: Tensor) -> Tensor:
        """Carries out the latest decision: pictures (1, 3, H, W) in, one of this or another size out."""
        answer = self.kept[self.latest.slot] if self.latest.given else pictures
        if self.latest.write < self.size:
            self.kept[self.latest.write] = pictures
        return answer

    def state_dict(self) -> dict[str, Any]:
        """The whole state of the pool, loadable with ``weights_only=True``."""
        return {**super().state_dict(), "kept": dict(self.kept)}

    def load_state_dict(
        self, state: dict[str, Any], device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> None:
        """Loads the state of a pool of this kind and size, its pictures on `device` and, if given, of another type."""
        super().load_state_dict(state, device, dtype)
        self.kept = {slot: picture.to(device, dtype) for slot, picture in state["kept"].items()}
