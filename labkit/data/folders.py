"""Unpaired folders of pictures: trainA, trainB and, where there are any, testA, testB."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit.data.batches import Pictures, UnpairedData
from labkit.data.images import READABLE, find_pictures, read_picture
from labkit.data.preprocess import Preprocess
from labkit.devices import free_memory
from labkit.errors import DataError

_STAND_INS = 8  # training pictures that serve as test pictures where there are none


@dataclass
class FolderData(UnpairedData):
    """Pictures from folders, how they were resized, and the files that could not be used, each with the reason."""

    preprocess: Preprocess = field(default_factory=Preprocess)
    left_out: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a run on these data keeps when it resumes; the defaults are not named."""
        mode, usual = self.preprocess.mode, Preprocess(size=self.size)
        differing: dict[str, Any] = {"preprocess": mode} if mode != usual.mode else {}
        if self.preprocess.loaded != usual.loaded:
            differing["load_size"] = self.preprocess.loaded
        return {**super().settings, **differing}


def folders(
    path: Path | str,
    size: int = 256,
    *,
    preprocess: str = "resize_and_crop",
    load_size: int | None = None,
    flip: bool = True,
) -> FolderData:
    """The pictures in the folders trainA, trainB, testA and testB of `path`, prepared as by the public reference.

    Training pictures are resized to a square of 286/256 of `size` (bicubic, antialiased, from any shape),
    from which `size` is cropped at random later; test pictures are resized to `size`. Where a test folder is missing
    or holds no picture, the first few training pictures stand in. Folders in these folders are searched, too.

    Every picture is decoded once here. Those that cannot be read, or whose shorter side is below `size`, are left
    out, named in a warning and listed in `left_out`. The resized pictures of each folder stay in memory as long as a
    quarter of the free memory holds them; otherwise each is read from its file again when it is needed.

    Args:
        path: the folder of these folders.
        size: pixels of the square that networks see.
        preprocess: another way to resize, one of the reference's: "crop", "scale_width", "scale_width_and_crop" or
            "none"; see `labkit.data.preprocess.Preprocess`. Their test pictures are cropped from the middle. With
            "scale_width" and "none" pictures may differ in size, and then need a batch size of 1.
        load_size: pixels to resize to before the crop, instead of 286/256 of `size`.
        flip: whether half of the training pictures are mirrored, left to right.

    Raises:
        DataError: the folders are not laid out like this, a set has no usable picture, or `size` is below 16 or does
            not go with `load_size`.
    """
    path = Path(path).expanduser()
    prepared = Preprocess(preprocess, size, load_size)
    files = _find_sets(path)
    room = free_memory() // 4
    train_a = _open(PictureFiles(files["trainA"], prepared.for_training, size), room)
    train_b = _open(PictureFiles(files["trainB"], prepared.for_training, size), room - train_a.nbytes)
    room -= train_a.nbytes + train_b.nbytes
    test_a = _open(PictureFiles(files["testA"] or train_a.files[:_STAND_INS], prepared.for_testing, size), room)
    test_b = _open(PictureFiles(files["testB"] or train_b.files[:_STAND_INS], prepared.for_testing, size), room)

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
        flip=flip,
        sizes=None if prepared.crops else train_a.sizes | train_b.sizes,
        preprocess=prepared,
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
        holds += [f"{len(loose)} pictures outside any folder"] if (loose := find_pictures(path, nested=False)) else []
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
            raise DataError(f"{path / name} holds no picture. Put {READABLE} files into it, or into folders in it.")
    return files


@dataclass(frozen=True)
class PictureFiles:
    """Pictures that are decoded and transformed at each access, in the process that asks: a worker."""

    files: list[Path]
    transform: Callable[[Tensor], Tensor] = Tensor.contiguous
    least: int = 1  # pixels that the shorter side must have

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        file = self.files[index]
        picture = read_picture(file)
        shorter = min(picture.shape[1:])
        if shorter < self.least:
            remedy = f"Choose size={shorter // 4 * 4} or less, or take it out" if shorter >= 16 else "Take it out"
            raise DataError(f"{file} is only {shorter} pixels wide or high, size is {self.least}. {remedy}.")
        return self.transform(picture).contiguous()


class _Opened(NamedTuple):
    pictures: Pictures
    files: list[Path]
    sizes: set[tuple[int, int]]  # the heights and widths of the pictures
    left_out: list[tuple[Path, str]]
    nbytes: int  # of memory that the pictures take


def _open(found: PictureFiles, room: int) -> _Opened:
    """Decodes every picture once: those that can be used, in memory if `room` bytes hold them, and else still on disk.

    Raises:
        DataError: none can be used.
    """
    kept: list[Tensor] = []
    sizes: set[tuple[int, int]] = set()
    files: list[Path] = []
    left_out: list[tuple[Path, str]] = []
    nbytes = 0

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
            files.append(file)
            sizes.add((outcome.shape[1], outcome.shape[2]))
            nbytes += outcome.nbytes
            kept.append(outcome)
            if nbytes > room:
                kept.clear()
    if not files:
        folder = found.files[0].parent
        raise DataError(f"None of the {len(found)} pictures in {folder} can be used:\n{_listing(left_out)}")
    if nbytes > room:
        return _Opened(replace(found, files=files), files, sizes, left_out, 0)
    return _Opened(torch.stack(kept) if len(sizes) == 1 else kept, files, sizes, left_out, nbytes)


def _listing(left_out: list[tuple[Path, str]]) -> str:
    lines = [f"  {reason}" for _, reason in left_out[:10]]
    if len(left_out) > 10:
        lines.append(f"  ... and {len(left_out) - 10} more")
    return "\n".join(lines)
