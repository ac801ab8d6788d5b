"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labtrace.errors import LabError


@contextmanager
def atomic_write(path: Path | str, error: type[LabError] = LabError) -> Iterator[Path]:
    """Gives a temporary path in the same folder to write to. When the block ends, that file replaces `path`.

    An interruption or a full disk leaves the old file untouched. The temporary name begins with ".part-" and ends as
    `path` does, for writers that choose their format by the suffix. Missing folders are made. One process may write
    to `path` at a time.

    Raises:
        LabError: the file cannot be written, as the class given by `error`. The block should only write: its
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
    """Makes `folder`, and raises `LabError` if nothing can be written there: better before measuring than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise LabError(f"{folder}: nothing can be written there ({error}). Choose another folder.") from error


def check_writable(path: Path) -> None:
    """Raises `LabError` if no trace can be written to `path`: better before recording than after."""
    if not path.name.endswith((".json", ".json.gz")):
        raise LabError(f"{path}: a trace's name ends in .json or .json.gz.")
    check_folder(path.parent)
