"""Unpaired folders of pictures: trainA, trainB and, where there are any, testA, testB."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, overload

import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transforms
from tqdm.auto import tqdm

from labkit.data.batches import Pictures, UnpairedData
from labkit.data.images import find_pictures, read_picture
from labkit.devices import free_memory
from labkit.errors import DataError

_STAND_INS = 8  # training pictures that serve as test pictures where there are none


@dataclass
class FolderData(UnpairedData):
    """Pictures from folders, and the files that could not be used, each with the reason."""

    left_out: list[tuple[Path, str]]


def folders(path: Path | str, size: int = 256) -> FolderData:
    """The pictures in the folders trainA, trainB, testA and testB of `path`, prepared as by the public reference.

    Training pictures are resized to a square of 286/256 of `size` (bicubic, antialiased, from any shape),
    from which `size` is cropped at random later; test pictures are resized to `size`. Where a test folder is missing
    or holds no picture, the first few training pictures stand in.

    Every picture is decoded once here. Those that cannot be read, or whose shorter side is below `size`, are left
    out, named in a warning and listed in `left_out`. The resized pictures stay in memory if all of them fit in a
    quarter of the free memory; otherwise each is read from its file again when it is needed.

    Raises:
        DataError: the folders are not laid out like this, a set has no usable picture, or `size` is below 16.
    """
    path = Path(path).expanduser()
    if size < 16:
        raise DataError(f"size={size} is too small to train on. Choose 16 or more; the public reference has 256.")
    files = _find_sets(path)
    load_size = round(size * 286 / 256)
    pixels = sum(len(found) * (load_size if name.startswith("train") else size) ** 2 for name, found in files.items())
    in_memory = 3 * pixels <= free_memory() / 4

    train_a = _open(_OnDisk(files["trainA"], load_size, size), in_memory)
    train_b = _open(_OnDisk(files["trainB"], load_size, size), in_memory)
    test_a = _open(_OnDisk(files["testA"] or train_a.files[:_STAND_INS], size, size), in_memory)
    test_b = _open(_OnDisk(files["testB"] or train_b.files[:_STAND_INS], size, size), in_memory)

    left_out = train_a.left_out + train_b.left_out + test_a.left_out + test_b.left_out
    if left_out:
        warnings.warn(
            f"{len(left_out)} of {sum(map(len, files.values()))} pictures in {path} are left out "
            f"(`left_out` lists them all):\n{_listing(left_out)}",
            stacklevel=2,
        )
    return FolderData(
        name=path.resolve().name,
        size=size,
        train_a=train_a.pictures,
        train_b=train_b.pictures,
        test_a=test_a.pictures,
        test_b=test_b.pictures,
        left_out=left_out,
    )


def _find_sets(path: Path) -> dict[str, list[Path]]:
    """The picture files of the four sets; those of the two test sets may be none."""
    layout = (
        f"The layout expected is\n  {path}/\n"
        "    trainA/  pictures of domain A      testA/  optional\n"
        "    trainB/  pictures of domain B      testB/  optional"
    )
    if not path.is_dir():
        raise DataError(f"{path} is {'a file, not a folder' if path.exists() else 'not there'}. {layout}")
    missing = [name for name in ("trainA", "trainB") if not (path / name).is_dir()]
    if missing:
        holds = [f"the folder {entry.name}" for entry in sorted(path.iterdir()) if entry.is_dir()]
        holds += [f"{len(loose)} pictures outside any folder"] if (loose := find_pictures(path)) else []
        raise DataError(
            f"{path} has no folder {' and no folder '.join(missing)}. "
            f"It holds {', '.join(holds) or 'no folder and no picture'}. {layout}"
        )
    files = {
        name: find_pictures(path / name) if (path / name).is_dir() else []
        for name in ("trainA", "trainB", "testA", "testB")
    }
    for name in ("trainA", "trainB"):
        if not files[name]:
            raise DataError(
                f"{path / name} holds no picture. Put JPEG, PNG or WebP files directly into it: "
                "folders inside it are not searched."
            )
    return files


@dataclass(frozen=True)
class _OnDisk:
    """Pictures (3, side, side) that are decoded and resized at each access, in the process that asks: a worker."""

    files: list[Path]
    side: int
    least: int  # pixels that the shorter side must have

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> _OnDisk: ...

    def __getitem__(self, index: int | slice) -> Tensor | _OnDisk:
        if isinstance(index, slice):
            return replace(self, files=self.files[index])
        file = self.files[index]
        picture = read_picture(file)
        shorter = min(picture.shape[1:])
        if shorter < self.least:
            remedy = f"Choose size={shorter // 4 * 4} or less, or take it out" if shorter >= 16 else "Take it out"
            raise DataError(f"{file} is only {shorter} pixels wide or high, size is {self.least}. {remedy}.")
        sides = [self.side, self.side]
        return transforms.resize(picture, sides, InterpolationMode.BICUBIC, antialias=True).contiguous()


class _Opened(NamedTuple):
    pictures: Pictures
    files: list[Path]
    left_out: list[tuple[Path, str]]


def _open(found: _OnDisk, in_memory: bool) -> _Opened:
    """Decode every picture once: those that can be used, as one tensor (N, 3, side, side) or still on disk.

    Raises:
        DataError: none can be used.
    """
    stack = torch.empty(len(found) if in_memory else 0, 3, found.side, found.side, dtype=torch.uint8)
    files: list[Path] = []
    left_out: list[tuple[Path, str]] = []

    def attempt(index: int) -> Tensor | DataError:
        try:
            return found[index]
        except DataError as error:
            return error

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:  # a photograph takes 100 MB while it is decoded
        outcomes = threads.map(attempt, range(len(found)))
        bar = tqdm(found.files, f"reading {found.files[0].parent.name}", disable=len(found) < 100)
        for file, outcome in zip(bar, outcomes, strict=True):
            if isinstance(outcome, DataError):
                left_out.append((file, str(outcome)))
                continue
            if in_memory:
                stack[len(files)] = outcome
            files.append(file)
    if not files:
        folder = found.files[0].parent
        raise DataError(f"None of the {len(found)} pictures in {folder} can be used:\n{_listing(left_out)}")
    return _Opened(stack[: len(files)] if in_memory else replace(found, files=files), files, left_out)


def _listing(left_out: list[tuple[Path, str]]) -> str:
    lines = [f"  {reason}" for _, reason in left_out[:10]]
    if len(left_out) > 10:
        lines.append(f"  ... and {len(left_out) - 10} more")
    return "\n".join(lines)
