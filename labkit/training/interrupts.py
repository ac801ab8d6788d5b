"""Signals that stop a run: noted, so that the step under way can finish and be saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.data._utils import signal_handling

from labkit import ranks
from labtrace.errors import message_alone

STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(KeyboardInterrupt):  # noqa: N818  # not an error: the user asked for it
    """A run that a signal stopped, after it was saved.

    Attributes:
        status: the exit status by which a shell knows the signal.
    """

    _render_traceback_ = message_alone

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.status = 128 + number


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Collects Ctrl-C, SIGTERM and SIGHUP, so that no update breaks off in the middle.

    A second Ctrl-C breaks off immediately, except in one of several ranks. A signal that was ignored stays so, as
    SIGHUP under nohup. Outside the main thread signals cannot be caught: nothing changes there.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN}
    alone = ranks.count() == 1  # one of several ranks hears Ctrl-C from torchrun, and perhaps from the terminal as well

    def note(number: int, frame: object) -> None:
        if alone:
            signal.signal(signal.SIGINT, before.get(signal.SIGINT, signal.SIG_IGN))
        if ranks.number() == 0 and not received:  # not print: the signal may have come in the middle of one
            again = "; a second interrupt stops immediately" if alone else ""
            os.write(2, f"\nlabkit: stops after this step{again}\n".encode())
        received.append(number)

    if hasattr(signal, "SIGCHLD"):  # PyTorch's own handler, set once, raises an error at any point if a worker dies
        signal_handling._set_SIGCHLD_handler()
        before_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in before:
        signal.signal(number, note)
    try:
        yield received
    finally:
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, before_child)
        if alone or not received:  # else torchrun sends SIGTERM to this rank as soon as another has ended
            for number, handler in before.items():
                signal.signal(number, handler)
