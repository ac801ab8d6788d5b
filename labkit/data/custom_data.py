"""Custom data in the place of folders: a map-style dataset whose items hold a picture of A and a picture of B."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from labkit.data.batches import UnpairedData, to_float, to_uint8
from labkit.data.images import read_picture
from labkit.errors import DataError

SAMPLES = 4  # pairs to look at during a run


@dataclass(repr=False)
class CustomData(UnpairedData):
    """A dataset of pairs, `train_a`. Its random numbers depend on seed and position, so that a run resumes exactly.

    `channels` are those that networks take of A and of B, and `whole` is the size of the first item.
    """

    channels: tuple[int, int] = field(default=(3, 3), kw_only=True)

    def example(self, seed: int, position: int) -> tuple[Tensor, Tensor]:
        return self.pair(self.index(seed, position), seed, position)

    def pair(self, index: int, seed: int, position: int) -> tuple[Tensor, Tensor]:
        """The pictures of an item as floats in [-1, 1]. Leaves the random numbers outside as they were."""
        number = random.Random(f"own {seed} {position}").getrandbits(32)
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng([]))
            stack.callback(random.setstate, random.getstate())
            stack.callback(np.random.set_state, np.random.get_state())
            torch.default_generator.manual_seed(number)  # not torch.manual_seed, which would seed the GPU as well
            random.seed(number)
            np.random.seed(number)
            item: Any = self.train_a[index]
        a, b = (item["A"], item["B"]) if isinstance(item, Mapping) else item
        read = map(read_picture, (a, b), self.channels, (f"item {index}, A: ", f"item {index}, B: "))
        a, b = (to_float(picture) if picture.dtype == torch.uint8 else picture for picture in read)
        shapes = [tuple(a.shape), tuple(b.shape)]
        self.whole = self.whole or (a.shape[1], a.shape[2])
        if {shape[1:] for shape in shapes} != {self.whole}:
            raise DataError(f"item {index} has shapes {shapes}, item 0 {self.whole}: resize or crop all to one size.")
        return a, b


def open_data(data: UnpairedData | Dataset, channels: tuple[int, int]) -> UnpairedData:
    """The data that `labkit.fit` was given, in a form that makes batches, whose pictures of A and of B have `channels`.

    Raises:
        DataError: they are neither labkit's nor a map-style dataset of pairs.
    """
    if isinstance(data, UnpairedData):
        return data
    items: Any = data
    opened = CustomData(f"a {type(data).__name__}", 0, items, items, [], [], channels=channels)
    try:
        pairs = [opened.pair(i, 0, 0) for i in range(min(SAMPLES, len(items)))]
        opened.test_a, opened.test_b = ([to_uint8(picture) for picture in half] for half in zip(*pairs, strict=True))
        opened.size = pairs[0][0].shape[1]
    except Exception as error:  # of code that is not labkit's
        raise DataError(
            f"data, a {type(data).__name__}, cannot be used ({type(error).__name__}: {error}). Give labkit.folders(), "
            'labkit.fruit() or a dataset with len(), at least 1, and items by number: (a, b) or {"A": a, "B": b}, of '
            "files, PIL pictures, arrays (H, W, C), tensors (C, H, W). Of a DataLoader give the dataset."
        ) from error
    return opened
