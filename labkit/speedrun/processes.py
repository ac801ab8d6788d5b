"""The processes of a speedrun: each entry trains in one of its own, timed and limited from outside, by the kernel."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import labkit

if sys.platform != "win32":
    import resource

EVERY_S = 0.25  # wall seconds between two interruptions
LOOK_S = 0.005
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends
GRACE_S = 10.0  # wall seconds beyond twice the limit of CPU time, for a process that does not compute
MEMORY = 12 * 2**30  # bytes of address space


class Ended(NamedTuple):
    """How a process ended: its exit status, negative for a signal; its CPU seconds and wall seconds; its last words."""

    status: int
    cpu_seconds: float
    wall_seconds: float
    said: str


def environment(**more: str) -> dict[str, str]:
    """The variables of a process of the speedrun: one thread, and this labkit."""
    passed = ("PATH", "LANG", "LC_ALL", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")  # the last leads to CUDA's driver
    kept = {name: os.environ[name] for name in passed if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(Path(labkit.__file__).parents[1]),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        **more,
    }


def run(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    seconds: float,
    interrupted: Callable[[], None] | None = None,
) -> Ended:
    """Runs ``python -m module`` in `folder` and waits for it; all that it has started ends with it.

    Its CPU seconds are the kernel's, from its start to its end, with those of the processes that it has waited for.

    Args:
        seconds: limit of CPU time; twice that, and a little more, is the limit of wall time.
        interrupted: called every `EVERY_S` seconds, at the start and at the end, while the process stands still.
    """

    def limits() -> None:
        if sys.platform == "linux":  # it ends with the judge, also if that is killed while it stands still
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        # CUDA reserves more addresses than there is memory, and macOS has no such limit.
        if "cuda" not in arguments and sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    if interrupted:
        interrupted()
    words = folder / "said.txt"
    started = time.monotonic()
    with open(words, "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env=environment(HOME=str(folder), TMPDIR=str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=limits,
        )
    try:
        status, used, stopped = _wait(process.pid, started + 2 * seconds + GRACE_S, interrupted)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it once more
    wall = time.monotonic() - started - stopped
    if interrupted:
        interrupted()
    last = words.read_text(errors="replace").strip()[-2000:]
    return Ended(process.returncode, used.ru_utime + used.ru_stime, wall, last)


def _wait(pid: int, until: float, interrupted: Callable[[], None] | None) -> tuple[int, resource.struct_rusage, float]:
    """Waits for a process: its status, what it used, and the wall seconds for which it stood still."""
    stopped, next_stop = 0.0, time.monotonic() + EVERY_S
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, used, stopped
        now = time.monotonic()
        if now > until + stopped:
            os.killpg(pid, signal.SIGKILL)
        if interrupted and now > next_stop:
            os.killpg(pid, signal.SIGSTOP)
            interrupted()
            os.killpg(pid, signal.SIGCONT)
            stopped += time.monotonic() - now
            next_stop = time.monotonic() + EVERY_S
        time.sleep(LOOK_S)
