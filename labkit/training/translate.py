"""Pictures in, translated pictures out: any size, one file or a folder of them."""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from labkit.data.batches import to_float, to_uint8
from labkit.data.images import FORMATS, find_pictures, read_picture, write_picture
from labkit.devices import free_memory, out_of_memory
from labkit.errors import DataError, LabkitError
from labkit.models.model import Model, run_network
from labkit.networks.layers import Generator
from labkit.training.interrupts import interrupts

BATCH = 16  # pictures of one size that a GPU translates together, at most ...
BATCH_PIXELS = 16 * 256 * 256  # ... and their pixels: with more of them it is no faster, and needs more memory
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
    on_written: Callable[[Path], None] | None = None,
    progress: bool = True,
) -> list[Path]:
    """Translates a picture into `target`, or every picture of a folder into the folder `target`.

    Pictures keep their size: the network sees them mirrored at the edges up to a size it can take. In a folder,
    pictures of the same size go through a GPU in batches. Ctrl-C and SIGTERM let the pictures under way finish, and
    the `KeyboardInterrupt` that follows says which pictures remain, as does the error on a full disk. The same call
    with `skip_existing` translates those.

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
        skip_existing: whether pictures whose file exists already are passed over.
        on_written: called with each file after it was written.
        progress: whether to draw a progress bar for a folder; without a terminal there is none in any case.

    Returns:
        the files written, in the order of their sources.

    Raises:
        DataError: there is nothing to translate, a picture cannot be read or is too large for the memory (the message
            names a size that fits), or a result cannot be written.
        LabkitError: the direction is unknown or not the model's, or the result would take the place of its source or of
            another file.
    """
    if size is not None and (not isinstance(size, int) or size < 1):
        raise LabkitError(f"size={size!r}: a whole number of pixels, at least 1, is needed.")
    if overwrite and skip_existing:
        raise LabkitError("overwrite and skip_existing exclude one another: give one of them.")
    network = model.translator(direction) if isinstance(model, Model) else model
    targets = _targets(Path(source), Path(target), overwrite, skip_existing)
    written: set[Path] = set()
    left_out: dict[Path, DataError] = {}

    def note(path: Path) -> None:
        written.add(path)
        bar.update()
        if on_written is not None:
            on_written(path)

    def state() -> str:
        remaining = [path for path, file in targets.items() if file not in written and path not in left_out]
        done = f"{len(written)} of {len(targets)} pictures are translated"
        return f"{done}; these remain:\n{_listing(remaining)}" if remaining else ""

    hidden = None if progress and len(targets) > 1 else True  # None: hidden where there is no terminal
    with tqdm(total=len(targets), unit="picture", disable=hidden) as bar:
        try:
            interrupted = _translate_all(network, targets, size, left_out, note)
        except LabkitError as error:
            if len(targets) == 1:
                raise
            raise type(error)(f"{error}\n{state()}") from error
    if interrupted and state():
        raise KeyboardInterrupt(f"stopped: {state()}")
    if left_out and len(left_out) == len(targets):
        if not Path(source).is_dir():
            raise left_out[Path(source)]
        reasons = "\n".join(map(str, left_out.values()))
        raise DataError(f"{source}: none of its pictures can be translated:\n{reasons}")
    if left_out:
        warnings.warn("pictures left out:\n" + "\n".join(map(str, left_out.values())), stacklevel=2)
    return [file for file in targets.values() if file in written]


def _targets(source: Path, target: Path, overwrite: bool, skip_existing: bool) -> dict[Path, Path]:
    """The file to write for each picture to translate. Raises errors for all that can be known before any work."""
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
    if skip_existing:
        return {path: file for path, file in targets.items() if file not in existing}
    if existing and not overwrite:
        raise LabkitError(
            f"{len(existing)} of {len(targets)} files to write exist already. Go on with the others (--skip-existing, "
            "or skip_existing=True), overwrite them (--overwrite, or overwrite=True), or name another target:\n"
            f"{_listing(existing)}"
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
    network: Generator,
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
            try:
                for group in _batches(network, list(targets), size, left_out):
                    for path, picture in _translated(network, group):
                        if isinstance(picture, DataError):
                            left_out[path] = picture
                        else:
                            under_way.append((targets[path], writer.submit(write_picture, picture, targets[path])))
                    wait(until=AHEAD)
                    if interrupted:
                        break
            except KeyboardInterrupt:  # the second Ctrl-C
                if not interrupted:
                    raise
            wait(until=0)
        except LabkitError:
            writer.shutdown(cancel_futures=True)
            for file, writing in under_way:
                if not writing.cancelled() and writing.exception() is None:
                    note(file)
            raise
    return bool(interrupted)


def _batches(
    network: Generator, pictures: list[Path], size: int | None, left_out: dict[Path, DataError]
) -> Iterator[list[tuple[Path, Tensor]]]:
    """Pictures of equal size together, each with its pixels; those that cannot be read go into `left_out`.

    Pictures of other sizes wait until there are enough for a batch, or until too many wait.
    """
    waiting: dict[torch.Size, list[tuple[Path, Tensor]]] = {}
    most = _pictures_at_once(network)
    for path, pixels in _read_ahead(pictures, size):
        if isinstance(pixels, DataError):
            left_out[path] = pixels
            continue
        group = waiting.setdefault(pixels.shape, [])
        group.append((path, pixels))
        if len(group) >= most or len(group) * pixels[0].numel() >= BATCH_PIXELS:
            yield waiting.pop(pixels.shape)
        elif sum(map(len, waiting.values())) > 4 * most:
            yield waiting.pop(max(waiting, key=lambda shape: len(waiting[shape])))
    yield from waiting.values()


def _pictures_at_once(network: Generator) -> int:
    """The pictures that go through the network together, at most: a processor is no faster with more than one."""
    return BATCH if next(network.parameters()).is_cuda else 1


def _read_ahead(pictures: list[Path], size: int | None) -> Iterator[tuple[Path, Tensor | DataError]]:
    def read(path: Path) -> Tensor | DataError:
        try:
            pixels = read_picture(path)
        except DataError as error:
            return error
        return pixels if size is None else resized(size, size)(pixels)

    if size is not None:
        from labkit.data.folders import resized  # a second to import

    with ThreadPoolExecutor(1) as reader:
        coming = iter(pictures)
        ahead = deque((path, reader.submit(read, path)) for path in islice(coming, AHEAD))
        while ahead:
            path, reading = ahead.popleft()
            ahead.extend((more, reader.submit(read, more)) for more in islice(coming, 1))
            yield path, reading.result()


def _translated(network: Generator, group: list[tuple[Path, Tensor]]) -> list[tuple[Path, Tensor | DataError]]:
    """The translations of pictures of one size, ``uint8`` (3, H, W), or the error on one too large for the memory."""
    paths, pictures = zip(*group, strict=True)
    try:
        return list(zip(paths, _run(network, torch.stack(pictures)), strict=True))
    except (RuntimeError, MemoryError) as error:
        if (reason := out_of_memory(error)) is None:
            raise
    if torch.cuda.is_initialized():  # after the except block: until then the error holds what was under way
        torch.cuda.empty_cache()
    if len(group) > 1:
        return [outcome for one in group for outcome in _translated(network, [one])]
    height, width = pictures[0].shape[1:]
    fitting = min(_pixels_that_fit(network), height * width // 2)
    side = max(network.min_size, math.isqrt(fitting) // network.size_multiple * network.size_multiple)
    too_large = DataError(
        f"{paths[0]}: a picture of {width}x{height} pixels is too large for the memory ({reason}). Translate it at "
        f"{side}x{side} pixels or fewer (--size {side}, or size={side}), or where there is more memory."
    )
    return [(paths[0], too_large)]


def _run(network: Generator, pictures: Tensor) -> Tensor:
    """Translated pictures, ``uint8`` (N, 3, H, W) in and out: mirrored at two edges up to a size the network takes.

    Raises:
        MemoryError: one picture would need more than the free memory. On the host nothing else would say so: Linux
            gives away more memory than there is, and ends the process when it is used.
        LabkitError: a network of the caller's own changes the size of pictures.
    """
    height, width = pictures.shape[-2:]
    sides = [
        max(network.min_size, math.ceil(side / network.size_multiple) * network.size_multiple)
        for side in (height, width)
    ]
    if math.prod(sides) > CHECKED_ABOVE and math.prod(sides) > (fitting := _pixels_that_fit(network)):
        raise MemoryError(f"{fitting / 1e6:.1f} million pixels fit")
    margins = ((0, 0), (0, 0), (0, sides[0] - height), (0, sides[1] - width))
    mirrored = torch.from_numpy(np.pad(pictures.numpy(), margins, "symmetric"))
    result = run_network(network, to_float(mirrored))
    if result.shape != mirrored.shape:
        raise LabkitError(
            f"{type(network).__name__} turns pictures of shape {tuple(mirrored.shape)} into {tuple(result.shape)}. Its "
            "attribute `size_multiple` has to say which sides it takes: size_multiple = 32 for sides that are "
            "multiples of 32."
        )
    return to_uint8(result[:, :, :height, :width])


def _pixels_that_fit(network: Generator) -> int:
    """Pixels of a picture for which the device's free memory suffices, judged by the memory of a small one."""
    side = max(network.min_size, math.ceil(64 / network.size_multiple) * network.size_multiple)
    with _LargestOperator() as largest:
        run_network(network, torch.zeros(1, 3, side, side))
    return int(SHARE * free_memory(next(network.parameters()).device) * side**2 / (COPIES * largest.bytes))


class _LargestOperator(TorchDispatchMode):
    """Notes the bytes of activations that an operator reads and writes, for that with the most."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, Tensor)]
        activations = {id(tensor): tensor for tensor in tensors if not isinstance(tensor, torch.nn.Parameter)}
        self.bytes = max(self.bytes, sum(tensor.nbytes for tensor in activations.values()))
        return result
