"""Pictures of any size through a generator: whole where the memory allows it, and else in strips."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.devices import OUT_OF_MEMORY, free_memory
from labkit.errors import LabkitError
from labkit.model import run_network
from labkit.networks.layers import Generator
from labkit.training.strips import can_follow, in_strips

ASKED_ABOVE = 256 * 256  # pixels; for fewer, of which training needs many times the memory, asking takes too long
STRIP = 1024 * 1024  # pixels of a strip, where the memory allows as many
SHARE = 0.8  # of the free memory that a whole picture may take
COPIES = 2  # convolutions copy their input and output into layouts of their own: so many times the tensors' memory
TILE, OVERLAP = 1024, 128  # pixels, for networks that strips cannot follow


class AnySize:
    """A generator for pictures of any size: (N, 3, H, W) in [-1, 1] in and out, ``float32``, on the CPU.

    The network sees pictures mirrored at their lower and right edges, up to a size it can take. A batch goes through it
    whole if the device's free memory allows it. Otherwise each picture goes by itself, and a picture that does not fit
    goes in strips (`labkit.training.strips`), with the same result. A network of your own that strips cannot follow
    translates large pictures in tiles that overlap and fade into each other, with a warning.
    """

    def __init__(self, network: Generator):
        self.network = network

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return next(self.network.parameters()).device

    def __call__(self, pictures: Tensor) -> Tensor:
        height, width = pictures.shape[-2:]
        return self._translated(_padded(self.network, pictures))[:, :, :height, :width]

    def room(self) -> int:
        """Pixels that go through the network at once: as many as the device's free memory holds now."""
        return int(SHARE * free_memory(self.device) / self._bytes_per_pixel)

    def _translated(self, pictures: Tensor) -> Tensor:
        number, pixels = len(pictures), pictures.shape[2] * pictures.shape[3]
        if number * pixels <= ASKED_ABOVE or number * pixels <= self.room():
            # It may not fit after all, if others take memory in the meantime or a convolution needs a large workspace.
            whole = _unless_out_of_memory(lambda: run_network(self.network, pictures))
            if whole is not None:
                _check_shape(self.network, pictures, whole)
                return whole
        if number > 1:
            return torch.cat([self._translated(picture[None]) for picture in pictures])
        if not self._can_follow:
            return in_tiles(self.network, pictures)
        strips = max(math.ceil(pixels / STRIP), math.ceil(2 * pixels / max(1, self.room())))
        parts = _unless_out_of_memory(lambda: in_strips(self.network, pictures, min(strips, pictures.shape[2])))
        if parts is None:
            raise LabkitError(
                f"out of memory with a picture of {pictures.shape[3]}x{pictures.shape[2]} pixels, even in strips. "
                "Translate it at a smaller size (--size, or size=...), or where there is more memory."
            )
        return parts

    @cached_property
    def _small(self) -> Tensor:
        """A picture of noise, as small as the network takes it."""
        side = max(self.network.least, math.ceil(64 / self.network.multiple) * self.network.multiple)
        return torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1

    @cached_property
    def _bytes_per_pixel(self) -> float:
        """Memory that the network needs, tried on a small picture."""
        with _LargestOperator() as largest:
            run_network(self.network, self._small)
        return COPIES * largest.bytes / self._small[0, 0].numel()

    @cached_property
    def _can_follow(self) -> bool:
        if can_follow(self.network, self._small):
            return True
        warnings.warn(
            f"{type(self.network).__name__}: strips cannot follow this network, and the memory is too small for the "
            "whole picture. It is translated in tiles, which can differ in brightness and colour.",
            stacklevel=2,
        )
        return False


def _check_shape(network: Generator, pictures: Tensor, result: Tensor) -> None:
    """Raises `LabkitError` if a network of the caller's own changes the size of pictures."""
    if result.shape != pictures.shape:
        raise LabkitError(
            f"{type(network).__name__} turns pictures of shape {tuple(pictures.shape)} into {tuple(result.shape)}. Its "
            "attribute `multiple` has to say which sides it takes: multiple = 32 for sides that are multiples of 32."
        )


def _unless_out_of_memory(run: Callable[[], Tensor]) -> Tensor | None:
    """What `run` returns, or None if the memory of the device or the host did not suffice."""
    try:
        return run()
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, OUT_OF_MEMORY) and "can't allocate memory" not in str(error):  # the host's allocator
            raise
    if torch.cuda.is_initialized():  # after the except block: until then the error holds what was under way
        torch.cuda.empty_cache()
    return None


class _LargestOperator(TorchDispatchMode):
    """Notes the bytes of activations that an operator reads and writes, for that with the most."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, Tensor)]
        activations = {id(tensor): tensor for tensor in tensors if not isinstance(tensor, torch.nn.Parameter)}
        self.bytes = max(self.bytes, sum(tensor.nbytes for tensor in activations.values()))
        return result


def in_tiles(network: Generator, picture: Tensor) -> Tensor:
    """Translates (1, 3, H, W) in square tiles, each by itself, that fade into each other where they overlap."""
    height, width = picture.shape[-2:]
    total, weights = torch.zeros_like(picture), torch.zeros(height, width)
    for top in _starts(height):
        for left in _starts(width):
            here = (..., slice(top, top + TILE), slice(left, left + TILE))
            rows, columns = picture[here].shape[-2:]
            fade = _fade(rows)[:, None] * _fade(columns)[None, :]
            total[here] += run_network(network, _padded(network, picture[here]))[..., :rows, :columns] * fade
            weights[here] += fade
    return total / weights


def _starts(length: int) -> list[int]:
    """Where tiles begin along a side, evenly spread, at least OVERLAP pixels shared between neighbours."""
    if length <= TILE:
        return [0]
    tiles = math.ceil((length - OVERLAP) / (TILE - OVERLAP))
    return [round(i * (length - TILE) / (tiles - 1)) for i in range(tiles)]


def _fade(length: int) -> Tensor:
    """Weights along a tile's side, rising over the overlap from either end."""
    from_edge = torch.arange(length).minimum(torch.arange(length).flip(0)) + 1.0
    return from_edge.clamp(max=OVERLAP) / OVERLAP


def _padded(network: Generator, pictures: Tensor) -> Tensor:
    """Pictures (N, 3, H, W) mirrored at their lower and right edges, up to a size the network takes."""
    sides = [max(network.least, math.ceil(n / network.multiple) * network.multiple) for n in pictures.shape[-2:]]
    rows, columns = (_mirrored(n, side) for n, side in zip(pictures.shape[-2:], sides, strict=True))
    return pictures[:, :, rows][:, :, :, columns]


def _mirrored(length: int, side: int) -> Tensor:
    """Indices 0 .. length - 1, length - 1 .. 0, 0 .. and so on, `side` of them."""
    there_and_back = torch.arange(side) % (2 * length)
    return torch.minimum(there_and_back, 2 * length - 1 - there_and_back)
