"""The pool of earlier fakes, which a discriminator is shown again so that it does not forget them."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Draw(NamedTuple):
    """The pool's decision for one picture of a batch."""

    slot: int  # the slot with an earlier picture ...
    given: bool  # ... and whether that one is returned
    picture: int  # else the picture of this batch that is returned
    write: int  # the slot that keeps the picture; the spare slot stands for "not kept"


class Draws(list[Draw]):
    """The decisions for a batch, one for each picture."""

    def to(self, device: torch.device) -> Tensor:
        """The decisions as (B, 4) integers on `device`."""
        # One copy, from pinned memory: any other would make the host wait for the GPU.
        rows = torch.tensor(self, dtype=torch.int64, pin_memory=device.type == "cuda")
        return rows.to(device, non_blocking=True)


class Pool:
    """Keeps `size` fakes and swaps half of the new ones for old ones.

    Until the pool is full, every picture is kept and returned. After that each picture is, with probability 1/2, kept
    in place of a random older one, which is returned instead of it. A pool of size 0 returns all pictures and keeps
    none. For one picture after the other, with a list, that is::

        def exchange_one(kept: list, picture):
            if len(kept) < size:
                kept.append(picture)
            elif size and random() > 0.5:
                place = randrange(size)
                kept[place], picture = picture, kept[place]
            return picture

    This class computes the same in two steps, so that a CUDA graph can hold the second one. `draw` decides for a whole
    batch, on the host, from random numbers that belong to the pool. `exchange` carries the decisions out on the device,
    by one gather from and one scatter into a buffer of fixed shape.

    Sources: Shrivastava et al. 2017 and Zhu et al. 2017, section 4.
    """

    def __init__(self, size: int = 50, seed: int = 0):
        self.size, self.filled = size, 0
        self.random = random.Random(seed)
        self.buffer: Tensor | None = None  # (size + 1, C, H, W); the last slot is spare and never read

    def __call__(self, pictures: Tensor) -> Tensor:
        """Takes pictures (B, 3, H, W) or codes (B, C, h, w), and returns as many, some of them from earlier batches."""
        return self.exchange(pictures, self.draw(len(pictures)).to(pictures.device))

    def draw(self, n: int) -> Draws:
        """Decides for `n` pictures, one after the other, without touching a picture."""
        draws = Draws(Draw(0, False, i, self.size) for i in range(n))
        kept_from_this_batch: dict[int, int] = {}
        for i in range(n):
            if self.filled < self.size:
                target = self.filled
                self.filled += 1
            elif self.size and self.random.random() > 0.5:
                target = self.random.randrange(self.size)
                earlier = kept_from_this_batch.get(target)
                if earlier is None:
                    draws[i] = draws[i]._replace(slot=target, given=True)
                else:  # the slot was filled by this very batch: return that picture, and write only the last one
                    draws[i] = draws[i]._replace(picture=earlier)
                    draws[earlier] = draws[earlier]._replace(write=self.size)
            else:
                continue
            draws[i] = draws[i]._replace(write=target)
            kept_from_this_batch[target] = i
        return draws

    def exchange(self, pictures: Tensor, draws: Tensor) -> Tensor:
        """Carries out decisions of `draw`, (B, 4) integers from `Draws.to`: pictures (B, 3, H, W) in and out.

        All pictures of a pool have one size.
        """
        if self.size == 0:
            return pictures
        if self.buffer is None:
            self.buffer = pictures.new_zeros(self.size + 1, *pictures.shape[1:])
        slot, given, picture, write = draws.unbind(1)
        older = self.buffer[slot]
        answer = torch.where(given.bool().view(-1, 1, 1, 1), older, pictures[picture])
        self.buffer.index_copy_(0, write, pictures)
        return answer

    def state_dict(self) -> dict[str, Any]:
        """The whole state of the pool, loadable with ``weights_only=True``."""
        kept = None if self.buffer is None else self.buffer[:-1].clone()
        return {"filled": self.filled, "random": self.random.getstate(), "pictures": kept}

    def load_state_dict(
        self, state: dict[str, Any], device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> None:
        """Loads the state of a pool of the same size, its pictures on `device` and, if given, of another float type."""
        self.filled, kept = state["filled"], state["pictures"]
        self.buffer = None if kept is None else torch.cat([kept, torch.zeros_like(kept[:1])]).to(device, dtype)
        self.random.setstate(state["random"])
