"""Folders that one process at a time writes to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.errors import LabkitError
from labtrace.files import check_folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, no other process or thread can hold this lock. It ends with the process, even if that is killed.

    The file ".lock" stays, and its existence means nothing. A warning says if the file system has no locks.

    Raises:
        LabkitError: another process or thread holds it, or nothing can be written there.
    """
    check_folder(folder)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise LabkitError(
            f"{folder}: another run trains into this folder. Wait until it ends, stop it, or choose another folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        warnings.warn(
            f"{folder}: no lock is possible there ({error}). Make sure that no second run trains into the same folder.",
            stacklevel=3,
        )
    try:
        yield
    finally:
        lock.release()
