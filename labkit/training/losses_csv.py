"""losses.csv: every step's losses and learning rates, beside the checkpoint, for spreadsheets and pandas."""

from __future__ import annotations

from pathlib import Path

from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.training.callbacks import Callback
from labkit.training.run import Run

FILE = "losses.csv"


class LossesCsv(Callback):
    """Writes a row for each step: its number, the learning rates (``lr_<player>``), and the losses.

    At each report the rows since the last one are appended. A run that resumes writes the file again, from the history
    in its checkpoint, so that no row is missing or there twice. A loss is empty in steps that did not have it, and a
    learning rate where a checkpoint of labkit 0.1.0 did not know it.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows, self.header = 0, ""  # of the file; with another header it has to be written again

    def on_start(self, run: Run) -> None:
        if run.done:
            self.on_report(run)

    def on_report(self, run: Run) -> None:
        header = _header(run)
        if self.header != header or not self.path.exists():
            with atomic_write(self.path) as part:
                part.write_text(header + _rows(run, 0), encoding="utf-8")
        else:
            try:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(_rows(run, self.rows))
            except OSError as error:
                raise LabkitError(f"{self.path} cannot be written ({error.strerror}). Make room.") from error
        self.rows, self.header = run.done, header


def _header(run: Run) -> str:
    return ",".join(["step", *(f"lr_{player}" for player in run.rates), *run.losses]) + "\n"


def _rows(run: Run, first: int) -> str:
    """The rows of all steps after step number `first`."""
    columns = [values[first:] for values in (*run.rates.values(), *run.losses.values())]
    return "".join(
        f"{number},{','.join('' if value != value else repr(value) for value in row)}\n"
        for number, row in enumerate(zip(*columns, strict=True), start=first + 1)
    )
