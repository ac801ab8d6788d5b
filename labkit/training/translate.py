"""Pictures in, translated pictures out: any size, one file or a folder of them."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import torch
from torch import Tensor

from labkit.data.batches import to_float, to_uint8
from labkit.data.images import find_pictures, read_picture, write_picture
from labkit.errors import DataError, LabkitError
from labkit.model import Model, run_network
from labkit.networks.layers import Generator

TILE = 1024  # pixels; a full-width ResNet-9 needs about 2 GB for a tile of this side
OVERLAP = 128


def translate(model: Model | Generator, source: Path | str, target: Path | str, direction: str = "AtoB") -> list[Path]:
    """Translates a picture into `target`, or every picture of a folder into the folder `target`.

    Pictures keep their size: the network sees them mirrored at the edges up to a size it can take. Pictures with
    a side of more than 1024 pixels are translated in tiles that overlap and fade into each other. Instance norm
    measures each tile by itself, so tiles of a network that uses it can differ in brightness and colour.

    Args:
        model: a `labkit.CycleGAN`, a `labkit.DeviationGAN`, or a generator from `labkit.load_generator`.
        source: a picture, or a folder; unreadable pictures in it are left out, with a warning.
        target: where the result goes; its suffix (.png, .jpg, .webp) is its format. Folders keep names and write PNG.
        direction: "AtoB" or "BtoA"; of no account for a single generator.

    Returns:
        the files written.

    Raises:
        DataError: there is nothing to translate, a picture cannot be read or a result cannot be written.
        LabkitError: the direction is unknown or not the model's, or the result would take the place of its source.
    """
    network = model.translator(direction) if isinstance(model, Model) else model
    source, target = Path(source), Path(target)
    if source.resolve() == target.resolve():
        raise LabkitError(f"{target}: the translation would take the place of its source. Name another target.")
    if not source.is_dir():
        write_picture(_translated(network, read_picture(source)), target)
        return [target]
    pictures = find_pictures(source)
    if not pictures:
        raise DataError(f"{source}: there are no pictures in this folder.")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: this folder cannot be made ({error.strerror}). Name another one.") from error
    written, left_out = [], []
    for picture, name in zip(pictures, _names(pictures), strict=True):
        try:
            pixels = read_picture(picture)
        except DataError as error:
            left_out.append(str(error))
            continue
        write_picture(_translated(network, pixels), target / name)
        written.append(target / name)
    if not written:
        raise DataError(f"{source}: none of its pictures can be read:\n" + "\n".join(left_out))
    if left_out:
        warnings.warn("pictures left out:\n" + "\n".join(left_out), stacklevel=2)
    return written


def _names(pictures: list[Path]) -> list[str]:
    """PNG names, none of them twice: pear.jpg and pear.png of one folder become pear.jpg.png and pear.png.png."""
    stems = [picture.stem for picture in pictures]
    return [f"{p.stem if stems.count(p.stem) == 1 else p.name}.png" for p in pictures]


def _translated(network: Generator, pixels: Tensor) -> Tensor:
    """uint8 (3, H, W) in and out."""
    picture = to_float(pixels)
    height, width = picture.shape[-2:]
    rows, columns = _starts(height), _starts(width)
    total, weights = torch.zeros(3, height, width), torch.zeros(1, height, width)
    for top in rows:
        for left in columns:
            part = picture[:, top : top + TILE, left : left + TILE]
            fade = _fade(part.shape[-2])[:, None] * _fade(part.shape[-1])[None, :]
            total[:, top : top + TILE, left : left + TILE] += _padded(network, part) * fade
            weights[:, top : top + TILE, left : left + TILE] += fade
    return to_uint8(total / weights)


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


def _padded(network: Generator, picture: Tensor) -> Tensor:
    """Runs the network on (3, H, W), mirrored at its lower and right edge up to a size the network takes."""
    height, width = picture.shape[-2:]
    sides = [max(network.least, math.ceil(n / network.multiple) * network.multiple) for n in (height, width)]
    rows, columns = (_mirrored(n, side) for n, side in zip((height, width), sides, strict=True))
    return run_network(network, picture[:, rows][:, :, columns][None])[0, :, :height, :width]


def _mirrored(length: int, side: int) -> Tensor:
    """Indices 0 .. length - 1, length - 1 .. 0, 0 .. and so on, `side` of them."""
    there_and_back = torch.arange(side) % (2 * length)
    return torch.minimum(there_and_back, 2 * length - 1 - there_and_back)
