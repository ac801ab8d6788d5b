"""Pictures in, translated pictures out: any size, one file or a folder of them."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit.data.batches import to_float, to_uint8
from labkit.data.images import FORMATS, find_pictures, read_picture, write_picture
from labkit.data.preprocess import resized
from labkit.errors import DataError, LabkitError
from labkit.model import Model
from labkit.networks.layers import Generator
from labkit.training.interrupts import interrupts
from labkit.training.large import AnySize

BATCH = 16  # pictures of one size that a GPU translates together, at most; a processor is no faster with more than one
AHEAD = 4  # pictures that are read before they are needed, and written after they are translated
LISTED = 20  # files that a message names


def translate(
    model: Model | Generator,
    source: Path | str,
    target: Path | str,
    direction: str = "AtoB",
    *,
    size: int | None = None,
    overwrite: bool = False,
    on_written: Callable[[Path], None] | None = None,
    progress: bool = True,
) -> list[Path]:
    """Translates a picture into `target`, or every picture of a folder into the folder `target`.

    Pictures keep their size: the network sees them mirrored at the edges up to a size it can take. A picture that does
    not fit into the free memory is translated in strips, with the same result (`labkit.training.large`). In a folder,
    pictures of the same size go through a GPU in batches. Ctrl-C and SIGTERM let the pictures under way finish, and
    the `KeyboardInterrupt` that follows says which pictures remain.

    Args:
        model: a `labkit.CycleGAN`, a `labkit.DeviationGAN`, or a generator from `labkit.load_generator`.
        source: a picture, or a folder with folders in it; unreadable pictures in it are left out, with a warning.
        target: where the result goes; its suffix (.png, .jpg, .webp) is its format. Folders keep names, and folders in
            them, and write PNG.
        direction: "AtoB" or "BtoA"; of no account for a single generator.
        size: resizes each picture to `size` by `size` pixels before, as test pictures are in training and in the public
            reference; the result has this size. None leaves each picture its own.
        overwrite: whether files that exist may be overwritten.
        on_written: called with each file after it was written.
        progress: whether to draw a progress bar for a folder; without a terminal there is none in any case.

    Returns:
        the files written, in the order of their sources.

    Raises:
        DataError: there is nothing to translate, a picture cannot be read or a result cannot be written.
        LabkitError: the direction is unknown or not the model's, the result would take the place of its source or of
            another file, or the memory does not suffice.
    """
    if size is not None and (not isinstance(size, int) or size < 1):
        raise LabkitError(f"size={size!r}: a whole number of pixels, at least 1, is needed.")
    network = AnySize(model.translator(direction) if isinstance(model, Model) else model)
    targets = _targets(Path(source), Path(target), overwrite)
    written: set[Path] = set()
    left_out: dict[Path, DataError] = {}

    def note(path: Path) -> None:
        written.add(path)
        bar.update()
        if on_written is not None:
            on_written(path)

    hidden = None if progress and len(targets) > 1 else True  # None: hidden where there is no terminal
    with tqdm(total=len(targets), unit="picture", disable=hidden) as bar:
        interrupted = _translate_all(network, targets, size, left_out, note)
    remaining = [path for path, file in targets.items() if file not in written and path not in left_out]
    if interrupted and remaining:
        raise KeyboardInterrupt(
            f"stopped: {len(written)} of {len(targets)} pictures are translated; these remain:\n{_listing(remaining)}"
        )
    if len(left_out) == len(targets):
        if not Path(source).is_dir():
            raise left_out[Path(source)]
        reasons = "\n".join(map(str, left_out.values()))
        raise DataError(f"{source}: none of its pictures can be read:\n{reasons}")
    if left_out:
        warnings.warn("pictures left out:\n" + "\n".join(map(str, left_out.values())), stacklevel=2)
    return [file for file in targets.values() if file in written]


def _targets(source: Path, target: Path, overwrite: bool) -> dict[Path, Path]:
    """The file to write for each picture. Raises errors for everything that can be known before any work."""
    if source.resolve() == target.resolve():
        raise LabkitError(f"{target}: the translation would take the place of its source. Name another target.")
    if source.is_dir():
        pictures = find_pictures(source)
        if source.resolve() in target.resolve().parents:  # results of an earlier call are no pictures to translate
            own = target.resolve()
            pictures = [p for p in pictures if own not in (p.parent.resolve(), *p.parent.resolve().parents)]
        if not pictures:
            raise DataError(f"{source}: there are no pictures in this folder.")
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{target}: this folder cannot be made ({error.strerror}). Name another one.") from error
        places = [target / picture.parent.relative_to(source) for picture in pictures]
        targets = {p: place / name for p, place, name in zip(pictures, places, _names(pictures), strict=True)}
    elif target.suffix.lower() not in FORMATS:
        raise DataError(f"{target} cannot be written: its name must end in one of {', '.join(FORMATS)}.")
    else:
        targets = {source: target}
    existing = [file for file in targets.values() if file.exists()]
    if existing and not overwrite:
        raise LabkitError(
            f"{len(existing)} of {len(targets)} files to write exist already. Name another target, or allow to "
            f"overwrite them (--overwrite, or overwrite=True):\n{_listing(existing)}"
        )
    return targets


def _names(pictures: list[Path]) -> list[str]:
    """PNG names, none of them twice: pear.jpg and pear.png of one folder become pear.jpg.png and pear.png.png."""
    stems = Counter((picture.parent, picture.stem) for picture in pictures)
    return [f"{p.stem if stems[p.parent, p.stem] == 1 else p.name}.png" for p in pictures]


def _listing(files: list[Path]) -> str:
    more = [f"  ... and {len(files) - LISTED} more"] if len(files) > LISTED else []
    return "\n".join([f"  {file}" for file in files[:LISTED]] + more)


def _translate_all(
    network: AnySize,
    targets: dict[Path, Path],
    size: int | None,
    left_out: dict[Path, DataError],
    note: Callable[[Path], None],
) -> bool:
    """Translates and writes each picture, and calls `note` with its file: True if Ctrl-C or SIGTERM ended it early.

    The next pictures are read, and the last ones written, in threads, while the network works on those between.
    """
    under_way: deque[tuple[Path, Future[None]]] = deque()

    def wait(until: int) -> None:
        while len(under_way) > until:
            file, writing = under_way[0]
            writing.result()
            under_way.popleft()
            note(file)

    with interrupts("the pictures under way") as interrupted, ThreadPoolExecutor(1) as writer:
        try:
            for group in _batches(network, list(targets), size, left_out):
                translated = to_uint8(network(to_float(torch.stack([pixels for _, pixels in group]))))
                for (path, _), picture in zip(group, translated, strict=True):
                    under_way.append((targets[path], writer.submit(write_picture, picture, targets[path])))
                wait(until=AHEAD)
                if interrupted:
                    break
        except KeyboardInterrupt:  # the second Ctrl-C
            if not interrupted:
                raise
        wait(until=0)
    return bool(interrupted)


def _batches(
    network: AnySize, pictures: list[Path], size: int | None, left_out: dict[Path, DataError]
) -> Iterator[list[tuple[Path, Tensor]]]:
    """Pictures of equal size together, each with its pixels; those that cannot be read go into `left_out`.

    Pictures of other sizes wait until there are enough for a batch, or until too many wait.
    """
    waiting: dict[torch.Size, list[tuple[Path, Tensor]]] = {}
    most = BATCH if network.device.type == "cuda" else 1
    for path, pixels in _read_ahead(pictures, size):
        if isinstance(pixels, DataError):
            left_out[path] = pixels
            continue
        group = waiting.setdefault(pixels.shape, [])
        group.append((path, pixels))
        if len(group) >= most or len(group) >= network.room() // pixels[0].numel():
            yield waiting.pop(pixels.shape)
        elif sum(map(len, waiting.values())) > 4 * most:
            yield waiting.pop(max(waiting, key=lambda shape: len(waiting[shape])))
    yield from waiting.values()


def _read_ahead(pictures: list[Path], size: int | None) -> Iterator[tuple[Path, Tensor | DataError]]:
    def read(path: Path) -> Tensor | DataError:
        try:
            pixels = read_picture(path)
        except DataError as error:
            return error
        if size is None:
            return pixels
        return resized(pixels, size, size)

    with ThreadPoolExecutor(1) as reader:
        coming = iter(pictures)
        ahead = deque((path, reader.submit(read, path)) for path in islice(coming, AHEAD))
        while ahead:
            path, reading = ahead.popleft()
            ahead.extend((more, reader.submit(read, more)) for more in islice(coming, 1))
            yield path, reading.result()
