"""losses.csv: every step's losses and learning rates, beside the checkpoint, for spreadsheets and pandas."""

from __future__ import annotations

import warnings
from pathlib import Path

from labkit.errors import LabkitError
from labkit.files import append, atomic_write
from labkit.training.callbacks import Callback
from labkit.training.run import Run

FILE = "losses.csv"


class LossesCsv(Callback):
    """Writes a row for each step: its number, the learning rates (``lr_<player>``), and the losses.

    At each report the rows since the last one are appended. A run that resumes writes the file again, from the history
    in its checkpoint, so that no row is missing or there twice. A loss is empty in steps that did not have it, and a
    learning rate where a checkpoint of labkit 0.1.0 did not know it. A disk that is full does not end the run: the rows
    follow when there is room.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows, self.header = 0, ""  # of the file; with another header it has to be written again
        self.failed = False

    def on_start(self, run: Run) -> None:
        if run.done:
            self.on_report(run)

    def on_report(self, run: Run) -> None:
        try:
            header = _header(run)
            if self.header != header or not self.path.exists():
                with atomic_write(self.path) as part:
                    part.write_text(header + _rows(run, 0), encoding="utf-8")
            else:
                append(self.path, _rows(run, self.rows).encode())
        except (LabkitError, OSError) as error:
            if not self.failed:
                reason = getattr(error, "strerror", None) or error
                warnings.warn(
                    f"step {run.done}: {self.path} cannot be written ({reason}). Training goes on, and the rows follow "
                    "when there is room.",
                    stacklevel=2,
                )
            self.failed = True
        else:
            self.rows, self.header, self.failed = run.done, header, False


def _header(run: Run) -> str:
    return ",".join(["step", *(f"lr_{player}" for player in run.rates), *run.losses]) + "\n"


def _rows(run: Run, first: int) -> str:
    """The rows of all steps after step number `first`."""
    columns = [values[first:] for values in (*run.rates.values(), *run.losses.values())]
    return "".join(
        f"{number},{','.join('' if value != value else repr(value) for value in row)}\n"
        for number, row in enumerate(zip(*columns, strict=True), start=first + 1)
    )
