"""Pictures in, translated pictures out: any size, one file or a folder of them."""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from tqdm.auto import tqdm

from labkit.data.batches import to_float, to_uint8
from labkit.data.images import find_pictures, read_picture, write_picture
from labkit.devices import free_memory, out_of_memory
from labkit.errors import DataError, LabkitError
from labkit.models.model import Model, run_network
from labkit.networks.layers import Generator

AHEAD = 4  # pictures that are read before they are needed, and written after they are translated
LISTED = 20  # files that a message names
CHECKED_ABOVE = 256 * 256  # pixels; a smaller picture needs far less memory than training did
SHARE = 0.8  # of the free memory that a picture may take
COPIES = 2  # convolutions copy their input and output into layouts of their own: so many times the tensors' memory


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

    Pictures keep their size: the network sees them mirrored at the edges up to a size it can take. In a terminal a bar
    shows the progress. After Ctrl-C, or on a full disk, the error says which pictures remain. The same call with
    `skip_existing` translates those.

    Args:
        model: a `labkit.CycleGAN`, a `labkit.DeviationGAN`, or a generator from `labkit.load_generator`.
        source: a picture, or a folder with folders in it. Pictures in it that cannot be read, or are too large for the
            memory, are left out, with a warning.
        target: where the result goes; its suffix (.png, .jpg, .webp) is its format. Folders keep names, and folders in
            them, and write PNG.
        direction: "AtoB" or "BtoA"; ignored for a single generator.
        size: resizes each picture to `size` by `size` pixels before, as test pictures are in training and in the public
            reference; the result has this size. None leaves each picture its own.
        overwrite: whether files that exist may be overwritten.
        skip_existing: whether pictures whose file exists already are passed over, also with `overwrite`.

    Returns:
        the files written, in the order of their sources.

    Raises:
        DataError: there is nothing to translate, no picture can be read or all are too large for the memory (the
            message names a size that fits), or a result cannot be written.
        LabkitError: the direction is unknown or not the model's, or the result would take the place of its source or of
            another file.
    """
    if size is not None and size < 1:
        raise LabkitError(f"size={size}: a number of pixels, at least 1, is needed.")
    network = model.translator(direction) if isinstance(model, Model) else model
    targets = _targets(Path(source), Path(target), overwrite, skip_existing)
    written: set[Path] = set()
    left_out: dict[Path, DataError] = {}

    def read(path: Path) -> tuple[Path, Tensor | None]:
        try:
            pixels = read_picture(path)
        except DataError as error:
            left_out[path] = error
            return path, None
        if size is not None:
            from labkit.data.folders import resized  # a second to import

            pixels = resized(size, size)(pixels)
        return path, pixels

    def write(path: Path, picture: Tensor) -> None:
        write_picture(picture, targets[path])
        written.add(targets[path])
        bar.update()

    with tqdm(total=len(targets), unit="picture", disable=None) as bar:  # None: hidden where there is no terminal
        try:
            pictures = _ahead(read, ((path,) for path in targets))
            for _ in _ahead(write, _translated(network, pictures, left_out)):
                pass
        except (LabkitError, KeyboardInterrupt) as error:
            remaining = [path for path, file in targets.items() if file not in written and path not in left_out]
            done = f"{len(written)} of {len(targets)} pictures are translated; these remain:"
            raise type(error)(f"{str(error) or 'stopped'}\n{done}\n{_listing(remaining)}") from error
    reasons = "\n".join(map(str, left_out.values()))
    if left_out and not written:
        raise DataError(reasons)
    if left_out:
        warnings.warn(f"pictures left out:\n{reasons}", stacklevel=2)
    return [file for file in targets.values() if file in written]


def _targets(source: Path, target: Path, overwrite: bool, skip_existing: bool) -> dict[Path, Path]:
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
        targets = {source: target}
    if skip_existing:
        return {path: file for path, file in targets.items() if not file.exists()}
    existing = [file for file in targets.values() if file.exists()]
    if existing and not overwrite:
        raise LabkitError(
            f"{len(existing)} of {len(targets)} files to write exist already: pass them over (--skip-existing, "
            f"skip_existing=True), overwrite them (--overwrite), or name another target:\n{_listing(existing)}"
        )
    return targets


def _listing(files: list[Path]) -> str:
    more = [f"  ... and {len(files) - LISTED} more"] if len(files) > LISTED else []
    return "\n".join([f"  {file}" for file in files[:LISTED]] + more)


def _ahead(function: Callable[..., Any], items: Iterable[tuple]) -> Iterator[Any]:
    """The function's results, in order. A thread works on the next few items while the caller uses the last result."""
    under_way: deque[Future] = deque()
    thread = ThreadPoolExecutor(1)
    try:
        for item in items:
            under_way.append(thread.submit(function, *item))
            if len(under_way) > AHEAD:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)


def _translated(
    network: Generator, pictures: Iterable[tuple[Path, Tensor | None]], left_out: dict[Path, DataError]
) -> Iterator[tuple[Path, Tensor]]:
    """The translation of each picture, ``uint8`` (3, H, W); those too large for the memory go into `left_out`."""
    for path, picture in pictures:
        if picture is None:  # it could not be read
            continue
        try:
            yield path, _run(network, picture)
        except (RuntimeError, MemoryError) as error:
            if (reason := out_of_memory(error)) is None:
                raise
            height, width = picture.shape[1:]
            fitting = min(_pixels_that_fit(network), height * width // 2)
            side = max(network.min_size, math.isqrt(fitting) // network.size_multiple * network.size_multiple)
            left_out[path] = DataError(
                f"{path}: a picture of {width}x{height} pixels is too large for the memory ({reason}). Translate it at "
                f"{side}x{side} pixels or fewer (--size {side}, or size={side})."
            )


def _run(network: Generator, picture: Tensor) -> Tensor:
    """A translated picture, ``uint8`` (3, H, W) in and out: mirrored at two edges up to a size the network takes.

    Raises:
        MemoryError: it would need more than the free memory. On the host nothing else would say so: Linux gives away
            more memory than there is, and ends the process when it is used.
        LabkitError: a network of the caller's own changes the size of pictures.
    """
    height, width = picture.shape[1:]
    sides = [_fitting_side(network, side) for side in (height, width)]
    if math.prod(sides) > CHECKED_ABOVE and math.prod(sides) > (fitting := _pixels_that_fit(network)):
        raise MemoryError(f"{fitting / 1e6:.1f} million pixels fit")
    mirrored = np.pad(picture.numpy(), ((0, 0), (0, sides[0] - height), (0, sides[1] - width)), "symmetric")
    result = run_network(network, to_float(torch.from_numpy(mirrored)[None]))[0]
    if result.shape != mirrored.shape:
        raise LabkitError(
            f"{type(network).__name__} turns shape {mirrored.shape} into {tuple(result.shape)}. Its attribute "
            "`size_multiple` has to say which sides of pictures it takes."
        )
    return to_uint8(result[:, :height, :width])


def _pixels_that_fit(network: Generator) -> int:
    """Pixels of a picture for which the device's free memory suffices, judged by the largest layer of a small one."""
    side, layers = _fitting_side(network, 64), []

    def note(layer: torch.nn.Module, inputs: Any, output: Any) -> None:
        layers.append(sum(tensor.nbytes for tensor in (*inputs, output) if isinstance(tensor, Tensor)))

    with register_module_forward_hook(note):
        run_network(network, torch.zeros(1, 3, side, side))
    return int(SHARE * free_memory(next(network.parameters()).device) * side**2 / (COPIES * max(layers)))


def _fitting_side(network: Generator, side: int) -> int:
    """The smallest side that the network takes and that is no shorter than this one."""
    return max(network.min_size, math.ceil(side / network.size_multiple) * network.size_multiple)
