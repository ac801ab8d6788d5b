"""Your predictions and the measurements: kept in one file for all notebooks, and scored in notebook 09."""

from __future__ import annotations

import json
import math
import os
from numbers import Real
from pathlib import Path

import pandas
from filelock import FileLock

from labkit.errors import LabkitError
from labtrace.files import atomic_write


def ledger_file() -> Path:
    """The one file with a student's predictions, in whichever folder a notebook lies.

    It is ``out/ledger.json`` in the clone of labkit that the working folder is part of, or, outside of a clone,
    ``.labkit/ledger.json`` in the home folder. The variable ``LABKIT_LEDGER`` names another file. Where nbgrader
    grades, in a folder ``autograded``, each notebook has a file beside it: a class shares the teacher's clone.
    """
    if chosen := os.environ.get("LABKIT_LEDGER"):
        return Path(chosen)
    here = Path.cwd()
    if "autograded" in here.parts:
        return here / "ledger.json"
    clones = (folder for folder in (here, *here.parents) if (folder / "labcourse").is_dir())
    return next((clone / "out" for clone in clones), Path.home() / ".labkit") / "ledger.json"


class Ledger:
    """Predictions of one notebook, whose tables from now on show long texts in full, as pandas does not by default.

    Args:
        notebook: its number, for example "04".
        path: the file with the predictions of all notebooks, by default `ledger_file()`.
    """

    def __init__(self, notebook: str, path: Path | str | None = None) -> None:
        self.notebook, self.path = notebook, Path(path or ledger_file())
        pandas.set_option("display.max_colwidth", None)

    def predict(self, what: str, guess: float | None) -> None:
        """Keeps a prediction: 0 or more, True or False for 1 or 0. Asks for one if it is None.

        One that is new, or another, after the measured value was shown is marked as such.
        """
        if guess is not None and not (isinstance(guess, Real) and math.isfinite(guess) and guess >= 0):
            raise LabkitError(f"prediction of {what!r}: {guess!r} is not a number of at least 0.")
        if guess is None:
            print(f"Predict {what!r}: replace None by a number, and run this cell before the next one.")
        old = read_ledger(self.path).get(self.notebook, {}).get(what, {})
        late = old.get("shown", False) and (old.get("late", False) or guess != old["guess"])
        self._put(what, {"guess": guess, "measured": None, "shown": old.get("shown", False), "late": late})

    def measured(self, what: str, value: float) -> None:
        """Keeps the measured value beside the prediction.

        Raises:
            LabkitError: the cell with the prediction has not run.
        """
        entries = read_ledger(self.path).get(self.notebook, {})
        if what not in entries:
            raise LabkitError(f"{what!r} was never predicted in notebook {self.notebook}: run the cells above first.")
        if (guess := entries[what]["guess"]) is not None:
            print(f"{what}: you predicted {guess:.3g}; measured: {value:.3g}")
        self._put(what, entries[what] | {"measured": float(value), "shown": True})

    def _put(self, what: str, entry: dict) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):  # another notebook may be open, too
            everything = read_ledger(self.path)
            everything.setdefault(self.notebook, {})[what] = entry
            with atomic_write(self.path) as part:
                part.write_text(json.dumps(everything, indent=1), encoding="utf-8")

    def table(self) -> pandas.DataFrame:
        """This notebook's predictions as text, with three digits: see `scores`."""
        table = scores(self.path).set_index(["notebook", "what"])
        own = table[table.index.get_level_values("notebook") == self.notebook].droplevel("notebook")
        late = own.pop("late").map({True: "after the measurement", False: ""})
        return own.map(lambda value: "none" if math.isnan(value) else f"{value:.3g}").assign(predicted=late)


def read_ledger(path: Path | str) -> dict[str, dict]:
    """The entries of all notebooks, by notebook and by name of the prediction, or none if there is no file yet.

    Raises:
        LabkitError: the file is damaged.
    """
    path = Path(path)
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LabkitError(f"{path}: damaged ({error}). Delete it, and run the notebooks' predictions again.") from error


def scores(path: Path | str | None = None) -> pandas.DataFrame:
    """One row for each prediction: notebook, what, guess, measured, late, and off_by, the factor between the values.

    late: whether the guess is from after the measurement.
    off_by is at least 1, and 1 is exact. It is infinite if only one of the two is 0, and NaN if one of them is missing.
    """
    rows = [
        {"notebook": notebook, "what": what, "guess": None, "measured": None, "late": False} | entry
        for notebook, entries in read_ledger(path or ledger_file()).items()
        for what, entry in entries.items()
    ]
    table = pandas.DataFrame(rows, columns=["notebook", "what", "guess", "measured", "late"])
    table[["guess", "measured"]] = table[["guess", "measured"]].astype(float)
    ratio = table["guess"] / table["measured"]
    return table.assign(off_by=ratio.where(ratio >= 1, 1 / ratio).mask(table["guess"] == table["measured"], 1.0))
