"""The ladder: the records so far, each with its entry's text, its times, and its pictures, in data/speedrun.

NAME.py      the entry (a student's repository has only that of the first)
NAME.json    its log: the stamp, the seeds, both entries' heats, the record before
NAME.webp    test pictures, and below each what the entry makes of it

benchmarks/authoring/ladder.py writes them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from labcourse.speedrun.entry import SIZE
from labkit.data.images import read_picture
from labtrace.errors import check_known

FOLDER = Path(__file__).parents[2] / "data" / "speedrun"  # in a clone; an installed package has none
BOARDS = ("cpu", "cuda")


def records(board: str = "cpu", folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The records of a board, the slowest first, as they were written."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted((one for one in found if one["board"] == board), key=lambda one: one["rung"])


def gain(record: Mapping[str, Any]) -> float | None:
    """The factor by which a record is faster than the one before, in the same race, or None for the first."""
    before = [heat["seconds"] for heat in record["heats_before"]]
    return statistics.median(before) / record["seconds"] if before else None


def source(name: str, folder: Path = FOLDER) -> str:
    """The text of an entry that made a record. Raises `LabkitError` if there is none of this name."""
    check_known("entry", name, sorted(path.stem for path in folder.glob("*.py")))
    return (folder / f"{name}.py").read_text(encoding="utf-8")


def pictures(name: str, folder: Path = FOLDER) -> tuple[Tensor, Tensor]:
    """Test pictures of a record, and what its entry made of them: ``uint8`` (N, 3, 64, 64) each."""
    rows = read_picture(folder / f"{name}.webp").unfold(1, SIZE, SIZE).unfold(2, SIZE, SIZE)  # (3, 2, N, 64, 64)
    apples, oranges = rows.permute(1, 2, 0, 3, 4)
    return apples, oranges
