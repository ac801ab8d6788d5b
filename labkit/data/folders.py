"""Unpaired folders of pictures: trainA, trainB and, where there are any, testA, testB. Public ones are downloaded."""

from __future__ import annotations

import mmap
import os
import tomllib
import warnings
import zlib
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import unpack_archive
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from labkit import ranks
from labkit.bars import bar
from labkit.data.batches import Pictures, Stamp, UnpairedData
from labkit.data.images import IN_FILES, READABLE, find_pictures, read_picture
from labkit.errors import DataError, explained, shown
from labkit.settings import plain
from labtrace.errors import check_known
from labtrace.files import atomic_write

Transform = Callable[[Tensor], Tensor]

SETS = {"trainA": "train_a", "trainB": "train_b", "testA": "test_a", "testB": "test_b"}
PREPROCESS = ("resize_and_crop", "crop", "scale_width_and_crop")
IN_MEMORY = 2 << 30  # bytes of a folder's pictures that stay in memory; all sets below take less
BLOCK = 4096  # bytes at the start, in the middle and at the end of a file, which tell whether it is the same
STAND_INS = 8  # training pictures that serve as test pictures where there are none

URL = "http://efrosgans.eecs.berkeley.edu/cyclegan/datasets/{name}.zip"
# Name: SHA-256 of the archive.
PUBLIC_SETS = tomllib.loads(Path(__file__).with_name("public_sets.toml").read_text(encoding="utf-8"))


def folders(
    path: Path | str,
    size: int = 256,
    *,
    preprocess: str = "resize_and_crop",
    load_size: int | None = None,
    flip: bool = True,
    channels: tuple[int, int] = (3, 3),
    checked: Path | str | None = None,
) -> UnpairedData:
    """The pictures in the folders trainA, trainB, testA and testB of `path`, prepared as by the public reference.

    Training pictures are resized to a square of 286/256 of `size` (bicubic, antialiased, from any shape), from which
    `size` is cropped at random later. Test pictures are resized to `size`. Where a test folder is missing or holds no
    picture, the first few training pictures stand in. Folders in these folders are searched, too.

    Every picture is decoded once here. Those that cannot be read, or whose shorter side is below `size`, are left out,
    with a warning for each folder that names the first ten. Another warning names a file that is in both domains. The
    resized pictures of a folder stay in memory if they take at most 2 GB. Otherwise each is read from its file again
    when it is needed. One that cannot be used any more is then replaced by the next one of its folder, with a warning:
    training continues, but no longer equals one with that picture.

    Args:
        path: the folder of these folders.
        size: pixels of the square that networks see.
        preprocess: another way to resize, one of the reference's. "scale_width_and_crop" resizes to a width of
            `load_size` and a height in proportion, at least `size`. "crop" leaves the size as it is. Both crop test
            pictures from the middle.
        load_size: pixels to resize to before the crop, instead of 286/256 of `size`. "crop" ignores it.
        flip: whether half of the training pictures are mirrored, left to right.
        channels: of pictures of A and of B, as their networks take them: 3 for RGB, 1 for grey.
        checked: a folder, such as the run's, whose file ``pictures_<size>.pt`` remembers the usable pictures of sets
            that do not stay in memory. The next call decodes only others, or if their bytes have changed.

    Raises:
        DataError: the folders are not laid out like this, a set has no usable picture, `size` is below 16 or above
            `load_size`, or nothing can be written into `checked`.
        LabkitError: there is no such `preprocess`, or `channels` are others.

    Example:
        >>> data = labkit.folders("photos", size=32)  # with photos/trainA and photos/trainB
        >>> len(data.train_a), data.test_b[0].shape
        (2, torch.Size([3, 32, 32]))
    """
    check_known("preprocess", preprocess, PREPROCESS)
    for each in channels:
        check_known("channels", each, IN_FILES)
    size = plain("size", size, int)
    usual = round(size * 286 / 256)
    load_size = usual if load_size is None else plain("load_size", load_size, int)
    if not 16 <= size <= load_size:
        raise DataError(f"size={size}: at least 16, and at most load_size={load_size}, from which it is cropped.")
    chosen = {"preprocess": (preprocess, PREPROCESS[0]), "load_size": (load_size, usual)}
    chosen |= {"channels": ([*channels], [3, 3])}
    for_training, for_testing = preparation(preprocess, size, load_size)
    path = Path(path).expanduser()
    files = _find(path)
    known: set[Stamp] = set()
    if checked is not None:
        checked = Path(checked, f"pictures_{size}.pt")
        with suppress(Exception):  # there is no such file yet, or it is damaged: all pictures are decoded
            known = set(torch.load(checked, weights_only=True))
    sets: dict[str, PictureFiles] = {}
    opened: dict[str, Any] = {}
    for name, key in SETS.items():
        transform = for_training if name.startswith("train") else for_testing
        found = files[name] or sets[f"train_{key[-1]}"].files[:STAND_INS]
        sets[key] = PictureFiles(found, transform, size, channels["ab".index(key[-1])])
        opened[key] = sets[key].opened(known, name)
    on_disk = [stamp for key in sets if opened[key] is sets[key] for stamp in sets[key].stamps]
    if checked is not None and on_disk and ranks.number() == 0:
        with atomic_write(checked, DataError) as part:
            torch.save(on_disk, part)
    in_a, in_b = ({stamp[1:]: stamp[0] for stamp in sets[key].stamps} for key in ("train_a", "train_b"))
    if both := in_a.keys() & in_b:
        warnings.warn(f"pictures in both domains: {len(both)}, such as {shown(in_a[min(both)])}", stacklevel=2)
    return UnpairedData(
        path.resolve().name,
        size,
        **opened,
        flip=flip,
        files=[sets[key].stamps for key in ("train_a", "train_b")],
        options={name: value for name, (value, default) in chosen.items() if value != default},
    )


def preparation(mode: str, size: int, load_size: int) -> tuple[Transform, Transform]:
    """One of three of the reference's ways to prepare ``uint8`` pictures (3, H, W). `folders` describes them.

    Returns:
        the transform of training pictures, which are cropped at random later, and that of test pictures, to (3, size,
        size).
    """
    if mode == "resize_and_crop":
        return resized(load_size, load_size), resized(size, size)
    width = load_size if mode == "scale_width_and_crop" else None
    in_proportion = partial(_in_proportion, width=width, min_height=size)
    return in_proportion, v2.Compose([in_proportion, v2.CenterCrop(size)])


def _in_proportion(picture: Tensor, width: int | None, min_height: int) -> Tensor:
    """The picture at this width, if one is given, and a height in proportion."""
    height, old_width = picture.shape[-2:]
    if width is None or (width == old_width and height >= min_height):
        return picture
    return resized(max(width * height // old_width, min_height), width)(picture)


def resized(height: int, width: int) -> Transform:
    """A transform of ``uint8`` pictures (3, H, W) to this height and width: bicubic, antialiased, as Pillow does it."""
    return v2.Resize((height, width), InterpolationMode.BICUBIC, antialias=True)


@dataclass
class PictureFiles:
    """Pictures that are decoded and transformed at each access, in the process that asks: a worker.

    Of those that were `opened`, one that cannot be used any more is replaced by the next file that can, so that a run
    continues. This depends on the files alone: all workers and ranks see the same picture.
    """

    files: list[Path]
    transform: Transform = Tensor.contiguous
    min_size: int = 1  # pixels that the shorter side must have
    channels: int = 3
    stamps: list[Stamp] = field(default_factory=list)  # of the files that were opened
    warned: Tensor | None = None  # for each file that was opened: whether a process has warned of it

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        if isinstance(picture := self.attempt(index), Tensor):
            return picture
        if self.warned is None:
            raise picture
        for k in (*range(index + 1, len(self)), *range(index)):
            if isinstance(other := self.attempt(k), Tensor):
                if not self.warned[index]:
                    warnings.warn(f"left out, with {shown(self.files[k].name)} in its place: {picture}", stacklevel=2)
                    self.warned[index] = True
                return other
        raise DataError(
            f"None of the {len(self)} pictures in {shown(self.files[0].parent)} can be used any more. Bring them back, "
            f"for instance by mounting their disk again, and run the same again. The first error was: {picture}"
        )

    def attempt(self, index: int) -> Tensor | DataError:
        """The picture of this file and no other, or the error that says why it cannot be used."""
        file = self.files[index]
        try:
            picture = read_picture(file, self.channels)
        except DataError as error:
            return error
        height, width = picture.shape[1:]
        if min(height, width) < self.min_size:
            return DataError(f"{shown(file)}: {width} x {height} pixels, smaller than size={self.min_size}.")
        return self.transform(picture).contiguous()

    def opened(self, known: Container[Stamp], name: str) -> Pictures:
        """Decodes every picture once and drops unusable ones: the others in memory if there is room, else `self`.

        Args:
            known: stamps of pictures that can be used, of sets that had no room. They are not decoded again.
            name: of the set, for messages.

        Raises:
            DataError: none can be used.
        """
        stamps = [stamp_of(file) for file in self.files]
        new = [k for k, stamp in enumerate(stamps) if stamp not in known]
        unusable: dict[int, str] = {}
        kept: list[Tensor] = []
        room = IN_MEMORY if len(new) == len(self) else -1
        hidden = {"disable": True} if len(new) < 100 else {}
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:  # a photograph takes 100 MB while decoded
            outcomes = zip(new, threads.map(self.attempt, new), strict=True)
            for k, outcome in bar(outcomes, f"reading {name}", total=len(new), **hidden):
                if isinstance(outcome, DataError):
                    unusable[k] = str(outcome)
                    continue
                room -= outcome.nbytes
                kept.append(outcome)
                if room < 0:
                    kept.clear()
        usable = [k for k in range(len(self)) if k not in unusable]
        if unusable:
            first = "\n".join([*unusable.values()][:10])
            warnings.warn(f"{name}: {len(usable)} pictures, {len(unusable)} left out, such as\n{first}", stacklevel=3)
        if not usable:
            raise DataError(f"None of the {len(self)} pictures in {name} can be used: the warning says why.")
        self.files, self.stamps = [self.files[k] for k in usable], [stamps[k] for k in usable]
        if room < 0:
            self.warned = torch.frombuffer(mmap.mmap(-1, len(self)), dtype=torch.bool)  # workers share it
            return self
        return torch.stack(kept) if len({picture.shape for picture in kept}) == 1 else kept


def stamp_of(file: Path) -> Stamp:
    """What tells without decoding whether a picture is the same. A file that is missing has -1 bytes."""
    with suppress(OSError):  # of a link to nothing, for example
        size, checksums = file.stat().st_size, ""
        if size:  # a pipe, whose other end one would wait for, has 0
            with open(file, "rb", buffering=0) as opened:
                for place in (0, size // 2, max(0, size - BLOCK)):
                    opened.seek(place)
                    checksums += f"{zlib.crc32(opened.read(BLOCK)):08x}"
        return file.name, size, checksums
    return file.name, -1, ""


def _find(path: Path) -> dict[str, list[Path]]:
    """The picture files of the four sets. The two test sets may have none."""
    files = {name: find_pictures(path / name) if (path / name).is_dir() else [] for name in SETS}
    for name in ("trainA", "trainB"):
        if not files[name]:
            problem = "holds no picture" if (path / name).is_dir() else "is not a folder"
            raise DataError(
                f"{(path / name).absolute()} {problem}. {path} needs folders trainA and trainB, "
                f"of {READABLE} files; testA and testB are optional."
            )
    return files


def download(name: str, root: Path | str = "datasets") -> Path:
    """The folder `root`/`name` with the public set `name`, ready for `labkit.folders`. It is downloaded if missing.

    The archive is downloaded and unpacked in a temporary folder inside `root`. When all of it is checked and there, its
    folder is renamed to `root`/`name`: a folder of this name is thus complete, and returned without using the network.

    Raises:
        LabkitError: no set has this name.
        DataError: the download fails or is not the published archive, or `root` is unwritable.
    """
    check_known("public set", name, PUBLIC_SETS)
    folder = Path(root).expanduser() / name
    if folder.is_dir():
        return folder
    url = URL.format(name=name)
    by_hand = "Check the connection and the disk, or unpack the archive yourself and give its folder to labkit.folders."
    with explained(f"{name} could not be fetched from {url} into {root}", by_hand, DataError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as temporary:
            archive = Path(temporary, "archive.zip")
            torch.hub.download_url_to_file(url, str(archive), PUBLIC_SETS[name])
            unpack_archive(archive, temporary)
            archive.with_name(name).rename(folder)
    return folder
