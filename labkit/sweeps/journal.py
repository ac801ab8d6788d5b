"""The file that all workers of a sweep share: Optuna's journal, checked before it is read, and never left half written.

Optuna's `JournalFileBackend` skips a last line that is not whole when it reads, but appends the next record to that
line, which damages the journal for good. A full disk leaves such half lines, and so does a power cut. So the lock under
which it appends cuts them off first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError
from labkit.files import check_folder

if TYPE_CHECKING:
    import optuna

SUFFIX = ".journal"
BROKEN_AFTER = 30  # seconds
BEGINNING = b'{"op_code":'  # of each record
STUDY = "sweep"


def check_optuna() -> None:
    """Raises `LabkitError` if a package that sweeps need is missing."""
    for name, install in (("optuna", "optuna>=4,<5"), ("pandas", "pandas>=2.2")):
        if not importlib.util.find_spec(name):
            raise LabkitError(f"a sweep needs the package {name}, which is not installed: pip install '{install}'")


class SharedLock:
    """Optuna's lock on a file, which works on network file systems, too: links where there are any, else files.

    A lock that a worker left when it was killed is broken by the others after `BROKEN_AFTER` seconds.

    Args:
        path: what the lock protects; the lock is a link or a file beside it.
        journal: whether that is a journal, of which half a line is cut off before somebody appends.
    """

    def __init__(self, path: Path, journal: bool = False):
        from optuna.storages.journal import JournalFileOpenLock, JournalFileSymlinkLock

        kind = JournalFileSymlinkLock if _has_links(path.parent) else JournalFileOpenLock
        path.touch()  # Optuna looks at the time of what the link leads to, and finds none if that is not there
        self.lock = kind(str(path.absolute()), grace_period=BROKEN_AFTER)
        self.journal = path if journal else None

    def acquire(self) -> bool:
        self.lock.acquire()
        try:
            if self.journal is not None:
                _cut_off_half_line(self.journal)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        with suppress(RuntimeError):  # the others broke it: this process was stopped for too long
            self.lock.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, no other worker holds it."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


def run_folder(path: Path) -> Path:
    """The folder of the sweep's runs: "out/sweep" for "out/sweep.journal"."""
    return path.with_suffix("")


def trial_folder(path: Path, number: int) -> Path:
    """The run's folder of a trial."""
    return run_folder(path) / f"trial_{number:04d}"


def open_to_write(path: Path) -> optuna.storages.JournalStorage:
    """The journal, made if it is not there; half a line at its end is cut off.

    Raises:
        LabkitError: it cannot be written, or is damaged, or no journal.

    Warns:
        UserWarning: half a line was cut off.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _check_name(path)
    check_folder(path.parent)
    try:
        open(path, "ab").close()
    except OSError as error:
        raise LabkitError(f"{path}: nothing can be written there ({error.strerror}). Choose another file.") from error
    _check_records(path)  # before anything is cut off: perhaps it is no journal
    lock = SharedLock(path, journal=True)
    with lock.held():
        pass
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))  # type: ignore[arg-type]  # it acts as one


def open_to_read(path: Path) -> optuna.Study:
    """The study in a journal, which is left as it is.

    Raises:
        LabkitError: there is none, or it is damaged, or no journal.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    _check_name(path)
    if not path.is_file():
        raise LabkitError(f"{path}: there is no such journal. Is the path right, and was the sweep ever started?")
    _check_records(path)
    try:
        return optuna.load_study(study_name=STUDY, storage=JournalStorage(JournalFileBackend(str(path))))
    except KeyError:
        raise LabkitError(f"{path}: no sweep has begun in this journal.") from None


def check_same(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises `LabkitError` if a journal's settings differ from the worker's."""
    differing = [
        f"{name}: {_in_words(saved.get(name))} there, {_in_words(wanted[name])} here"
        for name in wanted
        if saved.get(name) != wanted[name]
    ]
    if differing:
        raise LabkitError(
            f"{path}: the sweep in this journal has other settings: {'; '.join(differing)}. Give the same settings to "
            "work on it, or name another journal to begin a new sweep."
        )


def worker_name() -> str:
    """This process, as messages name it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _in_words(setting: object) -> str:
    if isinstance(setting, dict):
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in setting.items())
    return str(setting)


def _check_name(path: Path) -> None:
    if path.suffix != SUFFIX:
        raise LabkitError(
            f"{path}: the journal's name ends in {SUFFIX}, and its runs go into a folder of the same name."
        )
    if path.is_dir():
        raise LabkitError(f"{path}: this is a folder. Name a file in it.")


def _check_records(path: Path) -> None:
    """Raises `LabkitError` if a whole line is no record. Workers may append meanwhile."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LabkitError(f"{path}: the journal cannot be read ({error.strerror}). Choose another file.") from error
    *lines, last = content.split(b"\n")
    if not (lines or BEGINNING.startswith(last[: len(BEGINNING)])):
        raise LabkitError(f"{path}: this file is no journal of a sweep, and stays as it is. Choose another name.")
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or "op_code" not in record:
            if number == 1:
                raise LabkitError(
                    f"{path}: this file is no journal of a sweep, and stays as it is. Choose another name."
                )
            raise LabkitError(
                f"{path}: line {number} of {len(lines)} is damaged ({line[:40]!r}), and the records after it depend on "
                "it. Use a copy of the journal, or begin a sweep with another name; the runs' folders stay usable."
            )


def _cut_off_half_line(path: Path) -> None:
    """Only under the lock: a line that another worker is writing is not half a line."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        if end == 0:
            return
        file.seek(end - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        os.fsync(file.fileno())
    warnings.warn(
        f"{path}: it ended in half a record of {end - whole} bytes, as after a power cut or on a full disk. They were "
        "cut off, and the sweep goes on with the whole records.",
        stacklevel=2,
    )


def _has_links(folder: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".links-") as probe:
        try:
            os.symlink("nowhere", Path(probe, "link"))
        except OSError:
            return False
    return True
