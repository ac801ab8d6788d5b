"""Processes that end together."""

from __future__ import annotations

import ctypes
import signal
import sys


def end_with_parent(by: signal.Signals) -> None:
    """Linux sends this process a signal when the one that started it ends. On other systems nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, by)  # PR_SET_PDEATHSIG
