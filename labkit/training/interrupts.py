"""Ctrl-C and SIGTERM: noted, so that the step under way, or the pictures, can finish and be saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labkit import ranks


@contextmanager
def interrupts(until: str = "this step") -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM instead of breaking off between two halves of an update.

    The terminal is told that the program stops after `until`.

    A second Ctrl-C breaks off immediately. Of several ranks the first says so for all. Outside the main thread signals
    cannot be caught: nothing changes there.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        if ranks.number() == 0:  # not print: the signal may have come in the middle of one
            os.write(2, f"\nlabkit: stops after {until}; Ctrl-C again stops immediately\n".encode())

    for name in before:
        signal.signal(name, note)
    try:
        yield received
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
