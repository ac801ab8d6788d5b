"""Batches: batch k is a pure function of (seed, k), so workers, prefetch and resuming cannot change it."""

from __future__ import annotations

import atexit
import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

PREFETCH = 4  # batches that each worker prepares in advance
WITHIN = 1.001  # the largest number in pictures: 1, and what rounding adds

Stamp = tuple[str, int, str]  # of a picture's file: name, bytes, checksums. In old checkpoints the last is a time.


class Pictures(Protocol):
    """A set of pictures, each a ``uint8`` tensor of shape (3, H, W): a list, one large tensor, or files on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor: ...


@dataclass(repr=False)
class UnpairedData:
    """Pictures of domain A and of domain B, with no pairing between them.

    Each of the four sets yields ``uint8`` tensors of shape (3, H, W). Training pictures are at least `size` pixels wide
    and high and are cropped at random to (3, size, size). Test pictures already have that size. `whole` is the height
    and width of pictures that are not cropped, those of a dataset. `flip` says whether half of them are mirrored, left
    to right. `options` are further settings that change the pictures. `files` tells the training pictures from others
    if they are files, for A and for B, each by its stamp.
    """

    name: str
    size: int
    train_a: Pictures
    train_b: Pictures
    test_a: Pictures
    test_b: Pictures
    flip: bool = field(default=True, kw_only=True)
    whole: tuple[int, int] | None = field(default=None, kw_only=True)
    options: dict[str, Any] = field(default_factory=dict, kw_only=True)
    files: list[list[Stamp]] = field(default_factory=list, kw_only=True)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())  # not the pixels
        return f"{type(self).__name__}({shown})"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a run on these data has to keep when it resumes. Defaults are left out."""
        pictures = [len(self.train_a), len(self.train_b)]
        settings = {"data": self.name, "pictures": pictures, "size": self.size, **self.options}
        return settings if self.flip else {**settings, "flip": False}

    @property
    def epoch(self) -> int:
        """Pictures in one epoch: as many as the larger domain has, as in the public reference."""
        return max(len(self.train_a), len(self.train_b))

    def example(self, seed: int, position: int) -> tuple[Tensor, Tensor]:
        """The training example at `position` of the endless sequence that `seed` stands for.

        A goes through its pictures in an order shuffled for each epoch. B is drawn at random, so that no pairs form.
        Both are cropped and flipped at random.

        Returns:
            two ``float32`` tensors of shape (3, size, size), or (3, *whole), in [-1, 1].
        """
        rng = random.Random(f"example {seed} {position}")
        a = self.train_a[self.index(seed, position)]
        b = self.train_b[rng.randrange(len(self.train_b))]
        return self._augmented(a, rng), self._augmented(b, rng)

    def index(self, seed: int, position: int) -> int:
        """The number of the picture of A in the example at `position`; of a custom dataset, that of its item."""
        epoch, place = divmod(position, self.epoch)
        return shuffled(self.epoch, f"order {seed} {epoch}")[place] % len(self.train_a)

    def _augmented(self, picture: Tensor, rng: random.Random) -> Tensor:
        height, width = picture.shape[-2:]
        top, left = rng.randint(0, height - self.size), rng.randint(0, width - self.size)
        picture = picture[:, top : top + self.size, left : left + self.size]
        mirrored = rng.random() < 0.5  # drawn in any case, so that crops are the same without flips
        return to_float(picture.flip(-1) if mirrored and self.flip else picture)


@lru_cache(maxsize=2)
def shuffled(n: int, key: str) -> list[int]:
    """The numbers from 0 to n - 1 in an order that `key` determines."""
    order = list(range(n))
    random.Random(key).shuffle(order)
    return order


def to_float(pictures: Tensor) -> Tensor:
    """``uint8`` pictures of any shape as ``float32`` in [-1, 1]."""
    return pictures.float().div_(127.5).sub_(1)


def to_uint8(pictures: Tensor) -> Tensor:
    """Pictures in [-1, 1], of any shape and float type, as ``uint8``. Values outside are clipped."""
    return pictures.float().add(1).mul(127.5).round().clamp(0, 255).to(torch.uint8)


def positions(k: int, batch_size: int, rank: int = 0, ranks: int = 1) -> range:
    """The examples that one of `ranks` processes takes from batch `k`, by their positions in the endless sequence.

    Each takes the next batch_size // ranks of the batch, so that together they take what one process would.
    """
    each = batch_size // ranks
    first = k * batch_size + rank * each
    return range(first, first + each)


class _Batches(Dataset):
    """Item k is a rank's part of batch k, complete: it does not matter which process computes it, or when."""

    def __init__(self, data: UnpairedData, batch_size: int, seed: int, rank: int, ranks: int):
        self.data, self.batch_size, self.seed, self.rank, self.ranks = data, batch_size, seed, rank, ranks

    def __getitem__(self, k: int) -> tuple[Tensor, Tensor]:
        mine = positions(k, self.batch_size, self.rank, self.ranks)
        examples = [self.data.example(self.seed, position) for position in mine]
        a, b = (torch.stack(half).detach() for half in zip(*examples, strict=True))
        if get_worker_info() is not None:  # later the worker's queue would do it, and tell nobody if there is no room
            a.share_memory_()
            b.share_memory_()
        return a, b


def batches(
    data: UnpairedData,
    batch_size: int,
    start: int,
    stop: int,
    *,
    seed: int = 0,
    workers: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    rank: int = 0,
    ranks: int = 1,
    signals: Sequence[int] = (),
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches `start` to `stop` - 1, each two tensors of shape (batch_size, 3, size, size) on `device`.

    Of `ranks` processes that share each batch, this one gets the part of number `rank`: batch_size // ranks pictures.

    Once `signals` holds something, a batch that the workers do not deliver in a second is the end.

    One iterator serves the whole run, so worker processes start once and live to its end. On a GPU the
    batches are pinned, and batch k + 1 is copied on a stream of its own while the step works on batch k.
    """
    device = torch.device(device)
    loader = DataLoader(
        _Batches(data, batch_size, seed, rank, ranks),
        batch_size=None,  # an item already is a batch
        sampler=range(start, stop),
        num_workers=workers,
        prefetch_factor=PREFETCH if workers else None,
        pin_memory=device.type == "cuda",
        worker_init_fn=_prepare_worker,
        generator=torch.Generator(),  # or opening a loader, on resuming too, would move torch's own generator on
    )
    ready = _one_ahead(loader, signals) if workers else iter(loader)
    if device.type == "cuda":
        return _prefetched(ready, device, dtype)
    return ((a.to(device, dtype), b.to(device, dtype)) for a, b in ready)


def _prepare_worker(worker: int) -> None:
    """Ignores what ends a run in a worker: terminals and schedulers signal every process, and the run alone decides.

    If a batch cannot be sent, the worker ends, or the run would wait for this batch for ever.
    """
    Queue._on_queue_feeder_error = staticmethod(_end_worker)  # type: ignore[attr-defined]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _end_worker(error: Exception, batch: object) -> None:
    print(f"labkit: a batch cannot be sent to the run: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)


def _one_ahead(loader: DataLoader, signals: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Receives the next batch in a thread: taking it over from a worker costs milliseconds of the step's time."""
    received: Any = iter(loader)
    end = received._shutdown_workers
    atexit.register(end)  # or multiprocessing would send SIGTERM to the workers, who ignore it, and wait for them
    thread = ThreadPoolExecutor(1)
    coming = thread.submit(next, received, None)
    try:
        while _arrives(coming, signals) and (batch := coming.result()) is not None:
            coming = thread.submit(next, received, None)
            yield batch
    finally:
        if not _arrives(coming, signals):
            _kill(received._workers)  # the thread notices that within five seconds
        thread.shutdown()
        end()
        _kill(received._workers)  # those that hang
        atexit.unregister(end)


def _kill(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()


def _arrives(coming: Future, signals: Sequence[int]) -> bool:
    """Waits for a batch, or its error. False if it does not come, and a signal stops the run."""
    while not wait([coming], 1).done and not signals:
        pass
    return coming.done()


def _prefetched(
    ready: Iterator[tuple[Tensor, Tensor]], device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    copies = torch.cuda.Stream(device)
    waiting = None
    for batch in ready:
        with torch.cuda.stream(copies):
            a, b = (half.to(device, dtype, non_blocking=True) for half in batch)
        if waiting is not None:
            yield waiting
        torch.cuda.current_stream(device).wait_stream(copies)
        for half in (a, b):
            half.record_stream(torch.cuda.current_stream(device))  # or its memory is reused too early
        waiting = a, b
    if waiting is not None:
        yield waiting
