"""The progress of a run: a bar in a terminal or a notebook, and a plain line now and then in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm.auto import tqdm

INTERVAL = 30  # seconds between two lines


def progress_bar(done: int, steps: int, shown: bool = True) -> Any:
    """A context with tqdm's methods `update` and `set_postfix`. It draws nothing if it is not to be `shown`."""
    if shown and not sys.stderr.isatty() and not _in_notebook():
        return Lines(done, steps)
    return tqdm(initial=done, total=steps, unit="step", disable=not shown)


class Lines:
    """A line on standard error every 30 seconds, and one at the end: a bar would fill a file with its redrawing."""

    def __init__(self, done: int, steps: int):
        self.first = self.done = done
        self.steps, self.losses = steps, ""
        self.started = self.said_at = time.monotonic()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.done > self.first:
            self._say()

    def update(self) -> None:
        """Counts a step."""
        self.done += 1
        if time.monotonic() - self.said_at >= INTERVAL:
            self._say()

    def set_postfix(self, losses: Mapping[str, str], refresh: bool = False) -> None:
        """Takes the losses for the next line."""
        self.losses = ", ".join(f"{name} {loss}" for name, loss in losses.items())

    def _say(self) -> None:
        self.said_at = time.monotonic()
        speed = (self.done - self.first) / max(self.said_at - self.started, 1e-9)
        left = (self.steps - self.done) / speed
        remaining = f", {int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02} left" if left else ""
        said = f"step {self.done} of {self.steps}, {speed:.3g} steps/s{remaining}"
        print(f"{said}: {self.losses}" if self.losses else said, file=sys.stderr, flush=True)


def _in_notebook() -> bool:
    """Whether tqdm has a widget to draw: no terminal is needed for it."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None
