"""The results file of a survey: written whole or not at all, and read only if it belongs here."""

from __future__ import annotations

import json
from pathlib import Path

from labkit.errors import LabkitError
from labkit.files import atomic_write

FILE = "results.json"
FORMAT = 1
PARTS = {"stamp": dict, "calls": list, "rows": dict, "skipped": dict}


def go_on(file: Path, earlier: Path | str | None, here: dict) -> dict:
    """Results to add to, written to `file`: those that are there, those in the file `earlier`, or new ones.

    "stamp" and the last of "calls" is `here`, the stamp of this call; "rows" holds what was measured, "skipped" why
    not, both by the item's key. A row's "call" is the place of its stamp in "calls".

    Raises:
        LabkitError: the results there are cannot be read, are of another device, or would be overwritten by `earlier`.
    """
    source = file if earlier is None else Path(earlier)
    if file.exists() and file.resolve() != source.resolve():
        raise LabkitError(
            f"{file.parent} holds results of its own, which those in {source} would overwrite. Leave out the earlier "
            "file to continue what is there, or choose an empty folder."
        )
    if earlier is None and not file.exists():
        results = {"format": FORMAT, "stamp": here, "calls": [], "rows": {}, "skipped": {}}
    else:
        results = read(source)
        check_same_device(source, results["stamp"], here)
    results["stamp"] = here
    results["calls"].append(here)
    write(results, file)
    return results


def read(file: Path) -> dict:
    """The results in `file`.

    Raises:
        LabkitError: it is missing, damaged, or no results file of this format.
    """
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{file}: no results can be read there ({error.strerror}). Is the path right?") from error
    except ValueError as error:
        raise LabkitError(f"{file}: damaged ({error}). Use a copy of it, or move it away and begin anew.") from error
    whole = isinstance(results, dict) and all(isinstance(results.get(part), kind) for part, kind in PARTS.items())
    if not whole or results.get("format") != FORMAT:
        raise LabkitError(
            f"{file}: no results of a survey in format {FORMAT}, the one this labkit writes. Use another file, "
            "or leave it away and begin anew."
        )
    return results


def check_same_device(file: Path, there: dict, here: dict) -> None:
    """Raises `LabkitError` if two stamps, `there` that of `file`, are of different devices."""
    theirs, ours = (f"{one.get('device')} ({one.get('ran_on')})" for one in (there, here))
    if theirs != ours:
        raise LabkitError(
            f"{file}: measured on {theirs}, and this is {ours}. Each device needs results of its own: "
            "choose an empty folder, and no earlier file."
        )


def write(results: dict, file: Path) -> None:
    """Writes `results`, so that there is a whole file at any time.

    Raises:
        LabkitError: it cannot be written; the file from before is kept.
    """
    with atomic_write(file) as part:
        part.write_text(json.dumps(results, indent=1), encoding="utf-8")
