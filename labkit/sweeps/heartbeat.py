"""Which trials somebody trains at this moment: a file in the run's folder whose time changes while the worker lives.

Optuna has heartbeats for databases only (`RDBStorage`), not for journals. Clocks of two machines differ, so nobody
compares times: a worker is silent for as long as its file has not changed before the observer's eyes.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from labkit.errors import LabkitError
from labkit.files import locked
from labkit.sweeps.journal import worker_name

FILE = "heartbeat"
BEATS = 6  # in the time after which a silent worker counts as dead


class Heartbeat:
    """The sign of life of a worker that trains in `folder`, from now to the end of the context.

    Args:
        folder: of the run; made if it is not there.
        seconds: after which the others take a silent worker for dead.
    """

    def __init__(self, folder: Path, seconds: float):
        self.file, self.seconds = folder / FILE, seconds
        self.name = f"{worker_name()} {uuid.uuid4()}"
        self.ended = threading.Event()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.file.write_text(self.name)
        except OSError as error:
            raise LabkitError(
                f"{self.file} cannot be written ({error.strerror}). Make room, then try again."
            ) from error

    @property
    def mine(self) -> bool:
        """Whether no other worker has taken this one for dead, and its trial over."""
        sign = read(self.file.parent)
        return sign is not None and sign[0] == self.name

    def _beat(self) -> None:
        while not self.ended.wait(self.seconds / BEATS):
            with suppress(OSError):  # a network file system may be away for a moment
                if not self.mine:
                    return
                os.utime(self.file)  # which works on a full disk, too

    def __enter__(self) -> Heartbeat:
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self.thread.join()
        with suppress(OSError):  # on Windows no file is removed while somebody reads it
            if self.mine:
                self.file.unlink()


def read(folder: Path) -> tuple[str, int] | None:
    """The sign of life in a run's folder: the worker's name, and the file's time; None if nobody trains there."""
    try:
        with open(folder / FILE) as file:  # opening makes network file systems look at the file itself
            return file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None


class Watch:
    """What one worker has seen of the others' signs of life.

    Args:
        seconds: after which a silent worker counts as dead.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.seen: dict[Path, tuple[tuple[str, int], float]] = {}

    def abandoned(self, folder: Path) -> bool:
        """Whether nobody trains in `folder` any more.

        A worker that was stopped, and may go on, holds the lock of its run's folder for as long as it lives, wherever
        the file system knows such locks.
        """
        sign = read(folder)
        if sign is not None:
            if folder not in self.seen or self.seen[folder][0] != sign:
                self.seen[folder] = sign, time.monotonic()
            if time.monotonic() - self.seen[folder][1] < self.seconds:
                return False
        if not folder.is_dir():
            return True
        try:
            with locked(folder):
                return True
        except LabkitError:
            return False
