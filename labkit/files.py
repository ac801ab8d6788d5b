"""Files that are written whole or not at all, and folders that one process at a time writes to."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.errors import LabkitError


@contextmanager
def atomic_write(path: Path | str, error: type[LabkitError] = LabkitError) -> Iterator[Path]:
    """Gives a temporary path in the same folder to write to. When the block ends, that file replaces `path`.

    An interruption or a full disk leaves the old file untouched. The temporary name begins with ".part-" and ends as
    `path` does, for writers that choose their format by the suffix. Missing folders are made. One process may write
    to `path` at a time.

    Raises:
        LabkitError: the file cannot be written, as the class given by `error`. The block should only write: its
            OSErrors, and RuntimeErrors (PyTorch's writers turn a full disk into them), count as such failures.
    """
    path = Path(path)
    part = path.with_name(f".part-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)  # of a process that was killed
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())  # or a power cut could leave the new name with none of its bytes
        part.replace(path)
    except (OSError, RuntimeError) as caught:
        reason = str(caught).strip().partition("\n")[0][:200]
        kept = "; the file from before is kept" if path.exists() else ""
        raise error(
            f"{path} cannot be written ({reason}){kept}. Make room or choose another folder, then try again."
        ) from caught
    finally:
        if part.exists():  # the block failed
            part.unlink()


def check_folder(folder: Path) -> None:
    """Makes `folder`, and raises `LabkitError` if nothing can be written there: better before measuring than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LabkitError(f"{folder}: nothing can be written there ({error}). Choose another folder.") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, nobody else may hold this lock. It ends with the process, even if that is killed.

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
            f"{folder}: no lock can be had there ({error}). Take care that no second run trains into the same folder.",
            stacklevel=3,
        )
    try:
        yield
    finally:
        lock.release()
