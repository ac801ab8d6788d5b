"""The pool of earlier fakes that a discriminator is shown, so that it does not forget them."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch
from torch import Tensor


class Draw(NamedTuple):
    """What the pool decided for each picture of a batch; four lists as long as the batch."""

    slot: list[int]  # the slot to read an earlier picture from ...
    given: list[bool]  # ... and whether that picture is given back
    own: list[int]  # else the picture of this batch that is given back
    write: list[int]  # the slot that keeps the picture; the spare slot stands for "not kept"

    def on(self, device: torch.device) -> Tensor:
        """The four lists as the rows of one tensor, (4, B) integers, on `device`."""
        # One copy, from pinned memory: any other would make the host wait for the GPU.
        rows = torch.tensor(self, pin_memory=device.type == "cuda")
        return rows.to(device, non_blocking=True)


class Pool:
    """Keeps `size` fakes and swaps half of the new ones for old ones.

    Until it is full, every picture is kept and given back. After that each picture is, with probability 1/2,
    kept in place of a random older one, which is given back instead of it. Source: Shrivastava et al. 2017;
    Zhu et al. 2017, section 4.

    The decisions are drawn on the host, from a generator of the pool's own. The pictures stay on the device in
    one buffer of fixed shape, and one gather and one scatter exchange them, so that the exchange can be
    recorded into a CUDA graph and a checkpoint holds all there is.
    """

    def __init__(self, size: int = 50, seed: int = 0):
        self.size, self.filled = size, 0
        self.random = random.Random(seed)
        self.buffer: Tensor | None = None  # (size + 1, C, H, W): the last slot is spare, nobody reads it

    def __call__(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, H, W), or codes (B, C, h, w), in; as many out, some of them from earlier batches."""
        if self.size == 0:
            return pictures
        if self.buffer is not None and self.buffer.shape[1:] != pictures.shape[1:]:
            self.filled, self.buffer = 0, None  # pictures of another size: begin anew
        return self.exchange(pictures, self.draw(len(pictures)).on(pictures.device))

    def draw(self, n: int) -> Draw:
        """Decides for `n` pictures, one after the other; touches no picture."""
        slot, given, own, write = [0] * n, [False] * n, list(range(n)), [self.size] * n
        kept_from_this_batch: dict[int, int] = {}
        for i in range(n):
            if self.filled < self.size:
                target = self.filled
                self.filled += 1
            elif self.random.random() > 0.5:
                target = self.random.randrange(self.size)
                earlier = kept_from_this_batch.get(target)
                if earlier is None:
                    slot[i], given[i] = target, True
                else:  # the slot was filled by this very batch: give back that picture, and write only the last one
                    own[i], write[earlier] = earlier, self.size
            else:
                continue
            write[i] = target
            kept_from_this_batch[target] = i
        return Draw(slot, given, own, write)

    def exchange(self, pictures: Tensor, rows: Tensor) -> Tensor:
        """Carries out what `draw` decided, given as `Draw.on` the device: pictures (B, 3, H, W) in, as many out."""
        if self.buffer is None:
            self.buffer = pictures.new_zeros(self.size + 1, *pictures.shape[1:])
        slot, given, own, write = rows
        older = self.buffer[slot]
        answer = torch.where(given.bool().view(-1, 1, 1, 1), older, pictures[own])
        self.buffer.index_copy_(0, write, pictures)
        return answer

    def state_dict(self) -> dict:
        """All there is to the pool, loadable with ``weights_only=True``."""
        kept = None if self.buffer is None else self.buffer[:-1].clone()
        return {"filled": self.filled, "random": self.random.getstate(), "pictures": kept}

    def load_state_dict(self, state: dict, device: torch.device | str = "cpu") -> None:
        """Takes over the state of a pool of the same size, its pictures on `device`."""
        self.filled, kept = state["filled"], state["pictures"]
        self.buffer = None if kept is None else torch.cat([kept, torch.zeros_like(kept[:1])]).to(device)
        self.random.setstate(state["random"])
