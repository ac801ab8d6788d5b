"""Datasets and loaders of your own in the place of folders: whatever has a length and items, or yields batches."""

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
from torch.utils.data import DataLoader

from labkit.data.batches import UnpairedData, shuffled, to_float, to_uint8
from labkit.errors import DataError, LabkitError

SAMPLES = 4  # pictures to look at during a run, where there are no test pictures


@dataclass
class OwnData(UnpairedData):
    """Two sets of your own. What their items draw at random depends on seed and position, so that a run resumes."""

    def example(self, seed: int, position: int) -> tuple[Tensor, Tensor]:
        with _drawing_for(seed, position):
            return super().example(seed, position)


def unpaired(
    a: Any, b: Any, size: int, *, test_a: Any = None, test_b: Any = None, flip: bool = True, name: str = "own pictures"
) -> OwnData:
    """Pictures of A and of B from two sets of your own, to be cropped and flipped at random as those of folders are.

    A set has ``len()`` and items by number, for example a `torch.utils.data.Dataset` or a list. An item is a PIL
    picture, a ``uint8`` array (H, W, 3), or a ``uint8`` tensor (3, H, W); of a tuple such as (picture, label) the first
    part counts. A set may transform pictures at random with the generators of torch, Python and NumPy: they are
    seeded for each item, so runs resume exactly. It should not turn them into floats.

    Args:
        a, b: the sets to train on; each picture is at least `size` pixels wide and high.
        size: pixels of the square that is cropped.
        test_a, test_b: sets to look at during a run, whose middle is taken; None stands for the first pictures of `a`
            and `b`.
        flip: whether half of the pictures are mirrored, left to right.
        name: for messages and checkpoints.

    Raises:
        DataError: a set is empty, or, when an item is used, it is no such picture or is smaller than `size`.
    """
    sets = {"a": a, "b": b}
    for argument, given in sets.items():
        if not hasattr(given, "__len__") or not hasattr(given, "__getitem__") or not len(given):
            raise DataError(f"{argument}={given!r:.60}: give a set with len(), at least 1, and items by number.")
    trained = {argument: _Items(given, argument, size) for argument, given in sets.items()}
    test = {
        argument: [_middle(picture, size) for picture in _first(_Items(given, f"test_{argument}", size))]
        for argument, given in (("a", a if test_a is None else test_a), ("b", b if test_b is None else test_b))
    }
    return OwnData(name, size, trained["a"], trained["b"], test["a"], test["b"], flip=flip)


class _Items:
    """A set of the caller's, whose items are turned into ``uint8`` tensors (3, H, W)."""

    def __init__(self, given: Any, name: str, size: int):
        self.given, self.name, self.size = given, name, size

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: int) -> Tensor:
        item = self.given[index]
        picture = _picture(item[0] if isinstance(item, (tuple, list)) else item, f"{self.name}[{index}]")
        if picture.is_floating_point():
            raise DataError(
                f"{self.name}[{index}] is {picture.dtype}. Floats may be in [0, 1] or in [-1, 1], so give uint8 or PIL "
                "pictures: leave ToTensor, ToDtype and Normalize out of the transforms."
            )
        if min(picture.shape[1:]) < self.size:
            raise DataError(
                f"{self.name}[{index}] has {picture.shape[1]}x{picture.shape[2]} pixels, fewer than size={self.size}. "
                "Resize it before, or give a smaller size."
            )
        return picture


def _picture(item: Any, where: str) -> Tensor:
    """A PIL picture, an array (H, W, 3) or a tensor, as a tensor (3, H, W). Raises `DataError` if it is none."""
    if isinstance(item, Image.Image):
        item = np.array(item.convert("RGB"))
    if isinstance(item, np.ndarray) and item.ndim == 3 and item.shape[2] == 3:
        item = torch.from_numpy(item).permute(2, 0, 1)
    if not isinstance(item, Tensor) or item.dim() != 3 or item.shape[0] != 3:
        found = f"a tensor of shape {tuple(item.shape)}" if isinstance(item, Tensor) else f"{item!r:.60}"
        raise DataError(
            f"{where} is {found}; a PIL picture, an array (H, W, 3) or a tensor (3, H, W) is needed. For two sets of "
            "pictures, one of each domain, see labkit.unpaired."
        )
    if not item.is_floating_point() and item.dtype != torch.uint8:
        raise DataError(f"{where} is {item.dtype}: uint8 from 0 to 255 is needed, or PIL pictures.")
    return item


def _middle(picture: Tensor, size: int) -> Tensor:
    top, left = (picture.shape[1] - size) // 2, (picture.shape[2] - size) // 2
    return picture[:, top : top + size, left : left + size]


def _first(items: Any) -> list[Any]:
    return [items[i] for i in range(min(SAMPLES, len(items)))]


@dataclass
class OwnPairs(UnpairedData):
    """One set whose items hold a picture of each domain, (a, b) or ``{"A": a, "B": b}``, ready to train on."""

    def __post_init__(self) -> None:
        pass  # the base looks at single pictures

    def example(self, seed: int, position: int) -> tuple[Tensor, Tensor]:
        epoch, place = divmod(position, len(self.train_a))
        index = shuffled(len(self.train_a), f"order {seed} {epoch}")[place]
        with _drawing_for(seed, position):
            a, b = _ready(self.train_a[index], f"item {index} of {self.name}")
        expected = next(iter(self.sizes or ()), None)
        if not a.shape[1:] == b.shape[1:] == expected:
            raise DataError(
                f"item {index} of {self.name} has pictures of {tuple(a.shape[1:])} and {tuple(b.shape[1:])} "
                f"pixels, the first one of {expected}. They do not fit into one batch: crop them to one size."
            )
        return a, b


def _ready(item: Any, where: str) -> tuple[Tensor, Tensor]:
    """The pictures of an item, as floats in [-1, 1]; those of another type are turned into such."""
    a, b = _halves(item, where)
    a, b = _picture(a, f"the picture of A in {where}"), _picture(b, f"the picture of B in {where}")
    return (a if a.is_floating_point() else to_float(a)), (b if b.is_floating_point() else to_float(b))


def _halves(item: Any, where: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping) and "A" in item and "B" in item:
        return item["A"], item["B"]
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    kind = f"a dict with {', '.join(map(str, item))}" if isinstance(item, Mapping) else f"a {type(item).__name__}"
    raise DataError(f'{where} is {kind}; two parts are needed: (a, b), or {{"A": a, "B": b}}.')


class Loaded:
    """A `DataLoader` of your own, which yields whole batches, (a, b) or ``{"A": a, "B": b}``, epoch after epoch.

    The samples are the first pictures of the first batch.
    """

    sizes = None

    def __init__(self, loader: DataLoader):
        self.loader, self.name = loader, f"a {type(loader).__name__}"
        self.test_a: list[Tensor] = []
        self.test_b: list[Tensor] = []

    @property
    def settings(self) -> dict[str, Any]:
        """What a run with this loader has to keep when it resumes."""
        pictures = [len(self.loader.dataset)] if hasattr(self.loader.dataset, "__len__") else []
        return {"data": self.name, "pictures": pictures}

    def batches(self, n: int, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
        """The next `n` batches: two tensors (B, 3, H, W) in [-1, 1] each.

        Raises:
            DataError: the loader yields nothing, or something else.
        """
        done = 0
        while done < n:
            before = done
            for item in self.loader:
                a, b = _halves(item, f"a batch of {self.name}")
                for half in (a, b):
                    if not isinstance(half, Tensor):
                        raise DataError(f"a batch of {self.name} holds a {type(half).__name__}; tensors are needed.")
                a, b = (to_float(half) if half.dtype == torch.uint8 else half for half in (a, b))
                if not self.test_a:
                    self.test_a, self.test_b = (list(to_uint8(half[:SAMPLES]).cpu()) for half in (a, b))
                yield a.to(device, dtype, non_blocking=True), b.to(device, dtype, non_blocking=True)
                done += 1
                if done == n:
                    return
            if done == before:
                raise DataError(f"{self.name} yields no batch: is its dataset smaller than a batch, with drop_last?")


Source = UnpairedData | Loaded


def opened(data: Any) -> Source:
    """Anything that `labkit.fit` takes for data, as what it works with.

    Raises:
        LabkitError: it is nothing of the kind.
    """
    if isinstance(data, UnpairedData | Loaded):
        return data
    if isinstance(data, DataLoader):
        return Loaded(data)
    if isinstance(data, str) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or not len(data):
        raise LabkitError(
            f"data={data!r:.60}: give pictures, from labkit.folders(...), labkit.unpaired(...) or labkit.fruit(), a "
            "DataLoader, or a dataset whose items are (a, b)."
        )
    name = f"a {type(data).__name__}"
    first = [_ready(item, f"item {i} of {name}") for i, item in enumerate(_first(data))]
    test_a, test_b = ([to_uint8(pictures[half]) for pictures in first] for half in (0, 1))
    height, width = first[0][0].shape[1:]
    return OwnPairs(name, height, data, data, test_a, test_b, sizes={(height, width)})


@contextmanager
def _drawing_for(seed: int, position: int) -> Iterator[None]:
    """Lets torch, Python and NumPy draw the random numbers that belong to an example, whoever computes it."""
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
