"""Pictures in, translated pictures out: any size, one file or a folder of them."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit.data.batches import to_float, to_uint8
from labkit.data.images import IN_FILES, find_pictures, profile_of, read_picture, write_picture
from labkit.devices import out_of_memory
from labkit.errors import DataError, LabkitError, shown
from labkit.models.model import Model, run_network
from labkit.networks.layers import Generator, channels_of
from labkit.training.checkpoints import in_one_line
from labtrace.errors import check_at_least, check_exists, check_known


def translate(
    model: Model | Generator,
    source: Path | str,
    target: Path | str,
    direction: str = "AtoB",
    *,
    size: int | None = None,
    overwrite: bool = False,
    skip_existing: bool = False,
) -> list[Path]:
    """Translates a picture into `target`, or every picture of a folder into the folder `target`.

    Pictures keep their size: the network sees them mirrored at the edges up to a size it can take. They keep the ICC
    profile, too, if it is one of RGB, or of grey for a grey result. EXIF is not kept: the rotation is carried out, and
    places and previews do not continue. Transparency becomes white, with one warning.

    In a terminal a bar shows the progress. After Ctrl-C, or on a full disk, the error says how many are done. The same
    call with `skip_existing` translates the others.

    Args:
        model: a `labkit.CycleGAN`, a `labkit.DeviationGAN`, or a generator from `labkit.load_generator`.
        source: a picture, or a folder with folders in it. Pictures in it that cannot be read, or are too large for the
            memory, are left out, with a warning.
        target: where the result goes. Its suffix (.png, .jpg, .webp) is its format. Folders keep names, and folders in
            them, and write PNG. Pictures in it are not translated, if it is a folder in `source`.
        direction: "AtoB" or "BtoA", ignored for a single generator.
        size: resizes each picture to `size` by `size` pixels before, as test pictures are in training and in the public
            reference. The result has this size. None leaves each picture its own.
        overwrite: whether files that exist may be overwritten.
        skip_existing: whether pictures whose file exists already are passed over, also with `overwrite`.

    Returns:
        the files written, in the order of their sources.

    Raises:
        DataError: there is nothing to translate, no picture can be read or all are too large for the memory, or a
            result cannot be written.
        LabkitError: the direction is unknown or not the model's, its pictures are neither RGB nor grey, or the result
            would take the place of its source or of another file.

    Example:
        >>> model = labkit.CycleGAN("resnet_3blocks", ngf=4, ndf=4)
        >>> [path.name for path in labkit.translate(model, "photos/trainA", "album")]
        ['0.png', '1.png']
    """
    check_at_least(1, size=1 if size is None else size)
    network = model.translator(direction) if isinstance(model, Model) else model
    for channels in model.channels if isinstance(model, Model) else (channels_of(network),):
        check_known("channels", channels, IN_FILES)
    targets = targets_of(Path(source), Path(target), overwrite, skip_existing)
    written: list[Path] = []
    left_out: list[str] = []
    try:
        for path, file in tqdm(targets.items(), unit="picture", disable=None):  # None: hidden without a terminal
            try:
                picture = _translated(network, path, size)
            except DataError as error:
                left_out.append(str(error))
                continue
            write_picture(picture, file, profile_of(path, len(picture)))
            written.append(file)
    except (LabkitError, KeyboardInterrupt) as error:
        done = f"{len(written)} of {len(targets)} pictures are translated. Go on with --skip-existing (skip_existing)."
        raise type(error)(f"{str(error) or 'stopped'}\n{done}") from error
    if left_out and not written:
        raise DataError("\n".join(left_out))
    if left_out:
        warnings.warn("\n".join(["pictures left out:", *left_out]), stacklevel=2)
    return written


def targets_of(source: Path, target: Path, overwrite: bool, skip_existing: bool) -> dict[Path, Path]:
    """The file to write for each picture to translate. Raises errors for all that can be known before any work."""
    if source.resolve() == target.resolve():
        raise LabkitError(f"{target}: the translation would take the place of its source. Name another target.")
    if source.is_dir():
        pictures = find_pictures(source)
        if source.resolve() in target.resolve().parents:  # results of an earlier call are no pictures to translate
            pictures = [path for path in pictures if target.resolve() not in path.resolve().parents]
        if not pictures:
            raise DataError(f"{source}: there are no pictures in this folder.")
        # No name twice: pear.jpg and pear.png of one folder become pear.jpg.png and pear.png.png.
        stems = Counter(path.with_suffix("") for path in pictures)
        names = {path: f"{path.stem if stems[path.with_suffix('')] == 1 else path.name}.png" for path in pictures}
        targets = {path: target / path.parent.relative_to(source) / name for path, name in names.items()}
    else:
        check_exists(source, "a picture, or a folder of pictures", DataError)
        targets = {source: target}
    if skip_existing:
        return {path: file for path, file in targets.items() if not file.exists()}
    existing = [file for file in targets.values() if file.exists()]
    if existing and not overwrite:
        raise LabkitError(
            f"{len(existing)} of {len(targets)} files exist already, such as {shown(existing[0])}: pass them over "
            "(--skip-existing), overwrite them (--overwrite), or name another target."
        )
    return targets


def _translated(network: Generator, path: Path, size: int | None) -> Tensor:
    """The translation of the picture in a file, ``uint8`` (C, H, W).

    The network sees it mirrored at two edges, up to a size that it takes.

    Raises:
        DataError: the picture cannot be read, or is too large for the memory.
        LabkitError: a network of the caller's own changes the size of pictures.
    """
    picture = read_picture(path, channels_of(network))
    if size is not None:
        from labkit.data.folders import resized  # a second to import

        picture = resized(size, size)(picture)
    height, width = picture.shape[1:]
    multiple = network.size_multiple
    sides = [max(network.min_size, math.ceil(side / multiple) * multiple) for side in (height, width)]
    mirrored = np.pad(picture.numpy(), ((0, 0), (0, sides[0] - height), (0, sides[1] - width)), "symmetric")
    try:
        result = run_network(network, to_float(torch.from_numpy(mirrored)[None]))[0]
        if result.shape[1:] != mirrored.shape[1:]:
            raise ValueError(f"it returns shape {tuple(result.shape)}")
    except (RuntimeError, ValueError, MemoryError) as error:
        if (reason := out_of_memory(error)) is None:
            raise LabkitError(
                f"{path}: {type(network).__name__} cannot take {sides[1]}x{sides[0]} px ({in_one_line(error)}). Say in "
                "its size_multiple and min_size which sides it takes, or resize pictures: --size, or size=."
            ) from error
        raise DataError(
            f"{shown(path)}: a picture of {width}x{height} pixels is too large for the memory ({reason}). Translate it "
            "at fewer: give --size, or size=."
        ) from error
    return to_uint8(result[:, :height, :width])
