"""The memory that tensors share, part by part: who owns it, who used which part of it when, and whether it is free."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from labkit.course.vector_clocks import Clock
from labkit.simulate.cuda_stubs import Stream


class Region(NamedTuple):
    """The part of a memory that a tensor shows, counted in its numbers."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    number_bytes: int

    @classmethod
    def of(cls, tensor: Tensor) -> Region:
        """The region of a tensor that is not empty."""
        return cls(int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.element_size())

    def bounds(self) -> tuple[int, int]:
        """From its first byte to behind its last."""
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.offset * self.number_bytes, (self.offset + last + 1) * self.number_bytes

    def positions(self) -> Tensor:
        """Where its numbers lie."""
        positions = torch.tensor([self.offset])
        for size, stride in zip(self.sizes, self.strides, strict=True):
            positions = (positions[:, None] + stride * torch.arange(size)).flatten()
        return positions

    def overlaps(self, other: Region) -> bool:
        """Whether any byte belongs to both: halves of a memory, or every second column of it, need no order."""
        (begin, end), (other_begin, other_end) = self.bounds(), other.bounds()
        if end <= other_begin or other_end <= begin:
            return False
        if self == other or self.number_bytes != other.number_bytes:
            return True
        return bool(torch.isin(self.positions(), other.positions()).any())


class Use(NamedTuple):
    """How a stream used a region of a memory."""

    stream: Stream
    region: Region
    writes: bool


class Memory:
    """The memory that a tensor shares with its views: its owner, and when each stream last used which part of it."""

    def __init__(self, name: str, owner: Stream, tick: int, tensor: Tensor, is_cast: bool = False):
        self.name, self.owner, self.is_cast = name, owner, is_cast
        self.storage = tensor.untyped_storage()  # held, so that no other memory gets its address
        self.uses = {Use(owner, Region.of(tensor), True): tick}  # the number of the operation that did so last
        self.marked: set[Stream] = set()  # by record_stream

    def used(self, use: Use, tick: int) -> None:
        """Notes a use. A write to a region replaces what is known of it: it comes after all of that, or races."""
        if use.writes:
            self.uses = {old: at for old, at in self.uses.items() if old.region != use.region}
        self.uses[use] = tick

    def last_uses(self) -> Clock:
        """The last operation of each stream that read or wrote it."""
        last: Clock = Counter()
        for use, tick in self.uses.items():
            last[use.stream] = max(last[use.stream], tick)
        return last

    def is_free(self) -> bool:
        """Whether the program has let go of it: nobody but this object holds it."""
        return torch._C._storage_Use_Count(self.storage._cdata) == 1


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a nest of lists, tuples and dictionaries, without the empty ones."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.untyped_storage().nbytes()]


def address(tensor: Tensor) -> int:
    """The address of the memory that a tensor shares with its views."""
    return tensor.untyped_storage().data_ptr()


def changed_in_place(operation: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that `operation` writes to, according to its schema."""
    schema = operation._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | kwargs
    writes = {argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write}
    return [value for name, value in given.items() if name in writes]
