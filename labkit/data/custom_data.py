"""Custom data in the place of folders: a map-style dataset whose items hold a picture of A and a picture of B."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from labkit.data.batches import UnpairedData, to_float, to_uint8
from labkit.errors import DataError

SAMPLES = 4  # pairs to look at during a run


@dataclass(repr=False)
class CustomData(UnpairedData):
    """A dataset of pairs, `train_a`. Its random numbers depend on seed and position, so that a run resumes exactly.

    `shapes` are those of the first item.
    """

    shapes: list[tuple[int, ...]] = field(default_factory=list, kw_only=True)

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
        a, b = (_as_float(half) for half in ((item["A"], item["B"]) if isinstance(item, Mapping) else item))
        shapes = [tuple(a.shape), tuple(b.shape)]
        self.shapes = self.shapes or shapes
        if shapes != self.shapes or shapes[0][1:] != shapes[1][1:]:
            raise DataError(f"item {index} has shapes {shapes}, item 0 {self.shapes}: resize or crop all to one size.")
        return a, b


def open_data(data: UnpairedData | Dataset) -> UnpairedData:
    """The data that `labkit.fit` was given, in a form that makes batches.

    Raises:
        DataError: they are neither labkit's nor a map-style dataset of pairs.
    """
    if isinstance(data, UnpairedData):
        return data
    items: Any = data
    opened = CustomData(f"a {type(data).__name__}", 0, items, items, [], [])
    try:
        pairs = [opened.pair(i, 0, 0) for i in range(min(SAMPLES, len(items)))]
        opened.test_a, opened.test_b = ([to_uint8(picture) for picture in half] for half in zip(*pairs, strict=True))
        _, height, width = pairs[0][0].shape
    except Exception as error:  # of code that is not labkit's
        raise DataError(
            f"data={data!r:.60}: give labkit.folders(...), labkit.fruit(), or a dataset with len(), at least 1, and "
            'items by number: (a, b) or {"A": a, "B": b}, of PIL pictures or of tensors (C, H, W), uint8 or floats in '
            "[-1, 1]. Of a DataLoader give the dataset: labkit makes the batches. The first items of these data cannot "
            f"be used: {type(error).__name__}: {error}."
        ) from error
    opened.size, opened.whole = height, (height, width)
    return opened


def _as_float(picture: Any) -> Tensor:
    if isinstance(picture, Image.Image):
        picture = torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1)
    return to_float(picture) if picture.dtype == torch.uint8 else picture
