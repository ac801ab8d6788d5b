"""The progress of a run: a bar in a terminal or a notebook, and a plain line now and then in a log file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm.auto import tqdm

from labkit.training.callbacks import Callback
from labkit.training.run import Run

INTERVAL = 30  # seconds between two lines


class Progress(Callback):
    """Draws tqdm's bar in a terminal or a notebook, and prints `Lines` elsewhere."""

    def on_start(self, run: Run) -> None:
        if sys.stderr.isatty() or _in_notebook() or os.environ.get("TQDM_DISABLE"):
            self.bar: Any = tqdm(initial=run.done, total=run.steps, unit="step")
        else:
            self.bar = Lines(run.done, run.steps)

    def on_step(self, run: Run) -> None:
        self.bar.update()

    def on_report(self, run: Run) -> None:
        self.bar.set_postfix({name: f"{values[-1]:.3f}" for name, values in run.losses.items()}, refresh=False)

    def on_end(self, run: Run) -> None:
        self.bar.close()


class Lines:
    """A line on standard error every 30 seconds, and one at the end: a bar would fill a file with its redrawing."""

    def __init__(self, done: int, steps: int):
        self.first = self.done = done
        self.steps, self.losses = steps, ""
        self.started = self.said_at = time.monotonic()

    def update(self) -> None:
        """Counts a step."""
        self.done += 1
        if time.monotonic() - self.said_at >= INTERVAL:
            self._say()

    def set_postfix(self, losses: Mapping[str, str], refresh: bool = False) -> None:
        """Takes the losses for the next line."""
        self.losses = ", ".join(f"{name} {loss}" for name, loss in losses.items())

    def close(self) -> None:
        """Prints the last line, if there was a step."""
        if self.done > self.first:
            self._say()

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
