"""Files that are written whole or not at all, and folders that one process at a time writes to."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.errors import LabkitError


@contextmanager
def atomic_write(path: Path | str, error: type[LabkitError] = LabkitError) -> Iterator[Path]:
    """Gives a temporary path in the same folder to write to; when the block ends, that file replaces `path`.

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
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())  # or a power cut could leave the new name with none of its bytes
        os.replace(part, path)
    except (OSError, RuntimeError) as caught:
        reason = getattr(caught, "strerror", None) or str(caught).strip().partition("\n")[0][:200]
        where = getattr(caught, "filename", None)
        if where not in (None, str(part)):  # perhaps a file stands where a folder should
            reason += f": {where}"
        kept = "; the file from before is kept" if path.exists() else ""
        raise error(
            f"{path} cannot be written ({reason}){kept}. Make room or choose another folder, then try again."
        ) from caught
    finally:
        with suppress(OSError):  # it was renamed, or never begun
            part.unlink()


def link(source: Path, target: Path) -> None:
    """Gives a file a second name, so that it takes no more room; where there are no such links it is copied.

    The file must not be changed later, only replaced: a change would show under both names.

    Raises:
        LabkitError: the second file cannot be written.
    """
    with atomic_write(target) as part:
        try:
            os.link(source, part)
        except OSError:  # FAT and some network file systems have no links
            shutil.copyfile(source, part)


def check_folder(folder: Path) -> None:
    """Makes `folder`; raises `LabkitError` if nothing can be written there: better before measuring than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LabkitError(_unwritable(folder, error)) from error


def _unwritable(folder: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return f"{folder}: nothing can be written there ({reason}). Choose another folder."


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Inside, nobody else may hold this lock. It ends with the process, even if that is killed.

    The file ".lock" stays; that it exists means nothing. A warning says if the file system has no locks.

    Raises:
        LabkitError: another process or thread holds it; or the file ".lock" cannot be written there.
    """
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        holder = ""
        with suppress(OSError):  # Windows lets nobody else read it
            holder = (folder / ".lock").read_text(encoding="utf-8").strip()
        raise LabkitError(
            f"{folder}: another run trains into this folder ({holder or 'its process is not known'}). Wait until it "
            "ends, stop it, or choose another folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        if getattr(error, "errno", errno.ENOLCK) not in NO_LOCKS:
            raise LabkitError(_unwritable(folder, error)) from error
        warnings.warn(
            f"{folder}: this file system has no locks ({error}). Take care that no second run trains into the same "
            "folder.",
            stacklevel=3,
        )
    with suppress(OSError):  # the disk is full; the lock holds all the same
        (folder / ".lock").write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
    try:
        yield
    finally:
        lock.release()


NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
