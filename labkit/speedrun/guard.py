"""While an entry trains: what Python reports of files, processes and connections is held against the rules."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import labkit

BROKEN = "broken.json"  # written by a process that broke a rule, before it ends: the rule, and what was seen
STARTING = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "pty.spawn")
MAKERS = ("torch/_inductor", "torch/_dynamo", "torch/utils/_triton", "torch/_utils_internal")  # may start compilers


def start(file: str) -> None:
    """From now on this process ends as soon as it breaks a rule, which it leaves in the file `BROKEN`.

    Code on its own hardly gets round Python's audit hooks, since a hook cannot be taken back; C code does.

    Args:
        file: the entry, which may be read.
    """
    paths = sysconfig.get_paths()
    here = os.getcwd()
    readable = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    package = Path(labkit.__file__).parent  # its clone holds data, too, which is none of an entry's business
    readable += [str(package), str(package.with_suffix(".egg-info"))]
    readable += [sys.base_prefix, here, "/dev/null", "/dev/urandom", "/proc/self"]
    readable += ["/proc/cpuinfo", "/proc/meminfo", "/sys/devices", "/etc/ld.so.cache", os.path.abspath(file)]
    roots = tuple(map(os.path.realpath, readable))

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int):  # a file that is open already
                return
            real = os.path.realpath(os.fsdecode(path))
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not _within(real, (os.path.realpath(here), "/dev/null") if writes else roots):
                _end("data", f"it {'writes' if writes else 'reads'} {real}")
        elif event.startswith("socket.") and event not in ("socket.gethostname", "socket.__new__"):
            _end("data", f"it opens a connection ({event})")
        elif (event == "subprocess.Popen" or event in STARTING) and not _compiler():
            _end("alone", f"it starts a process ({event})")

    sys.addaudithook(look)


def _within(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + os.sep) for root in roots)


def _compiler() -> bool:
    """Whether PyTorch's own compiler is at work."""
    frame = sys._getframe(1)
    while frame is not None:
        if any(maker in frame.f_code.co_filename for maker in MAKERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _end(rule: str, seen: str) -> None:
    file = os.open(BROKEN, os.O_WRONLY | os.O_CREAT)  # inside of a hook, which this file may enter once more
    os.write(file, json.dumps({"rule": rule, "seen": seen}).encode())
    os._exit(1)
