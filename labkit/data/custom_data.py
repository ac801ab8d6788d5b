"""Custom data in the place of folders: a map-style dataset whose items hold a picture of A and a picture of B."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from labkit.data.batches import UnpairedData, shuffled, to_float, to_uint8
from labkit.errors import DataError, LabkitError

SAMPLES = 4  # pairs to look at during a run


@dataclass
class CustomData(UnpairedData):
    """A dataset of pairs, ready to train on. Its random numbers depend on seed and position, so that a run resumes."""

    def __post_init__(self) -> None:
        pass  # the base checks single pictures

    def example(self, seed: int, position: int) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(position, self.epoch)
        index = shuffled(self.epoch, f"order {seed} {epoch}")[place]
        with _random_numbers_of(seed, position):
            a, b = _pair(self.train_a[index], f"item {index} of {self.name}")
        size = next(iter(self.sizes or ()), None)
        if not a.shape[1:] == b.shape[1:] == size:
            raise DataError(
                f"item {index} of {self.name} has pictures of {tuple(a.shape[1:])} and {tuple(b.shape[1:])} pixels, "
                f"the first one of {size}. They do not fit into one batch: crop them to one size."
            )
        return a, b


def open_data(data: UnpairedData | Dataset) -> UnpairedData:
    """The data that `labkit.fit` was given, with which it can make batches.

    Raises:
        LabkitError: they are neither labkit's nor a map-style dataset of pairs.
    """
    if isinstance(data, UnpairedData):
        return data
    if isinstance(data, str) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or not len(data):
        raise LabkitError(
            f"data={data!r:.60}: give labkit.folders(...), labkit.fruit(), or a dataset with len(), at least 1, and "
            "items by number, each a pair (a, b). Of a DataLoader give the dataset: labkit makes the batches."
        )
    items: Any = data
    name = f"a {type(data).__name__}"
    with _random_numbers_of(0, 0):
        first = [_pair(items[i], f"item {i} of {name}") for i in range(min(SAMPLES, len(items)))]
    test_a, test_b = ([to_uint8(picture) for picture in half] for half in zip(*first, strict=True))
    height, width = first[0][0].shape[1:]
    return CustomData(name, height, items, items, test_a, test_b, sizes={(height, width)})


def _pair(item: Any, where: str) -> tuple[Tensor, Tensor]:
    """The pictures of A and B in an item, as floats in [-1, 1]."""
    pair = (item.get("A"), item.get("B")) if isinstance(item, Mapping) else item
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise DataError(f'{where} is a {type(item).__name__}; a pair is needed: (a, b), or {{"A": a, "B": b}}.')
    return _picture(pair[0], f"the picture of A in {where}"), _picture(pair[1], f"the picture of B in {where}")


def _picture(picture: Any, where: str) -> Tensor:
    from torchvision.transforms.v2 import functional  # a second to import

    if isinstance(picture, Image.Image):
        picture = functional.pil_to_tensor(picture.convert("RGB"))
    if not isinstance(picture, Tensor) or picture.dim() != 3 or picture.shape[0] != 3:
        found = f"a tensor of shape {tuple(picture.shape)}" if isinstance(picture, Tensor) else f"{picture!r:.60}"
        raise DataError(f"{where} is {found}; a PIL picture or a tensor (3, H, W) is needed.")
    if not picture.is_floating_point() and picture.dtype != torch.uint8:
        raise DataError(f"{where} is {picture.dtype}: uint8 from 0 to 255, or floats in [-1, 1], are needed.")
    return picture if picture.is_floating_point() else to_float(picture)


@contextmanager
def _random_numbers_of(seed: int, position: int) -> Iterator[None]:
    """Inside, torch, Python and NumPy draw the random numbers of one example, the same in every process."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    number = random.Random(f"own {seed} {position}").getrandbits(32)
    torch.default_generator.manual_seed(number)  # not torch.manual_seed, which would seed the GPU as well
    random.seed(number)
    np.random.seed(number)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])
