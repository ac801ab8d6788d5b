"""The ladder: the records so far, each with its entry's text, its times, and its pictures, in data/speedrun.

NAME.py      the entry (a student's repository has only that of the first)
NAME.json    the stamp, the seeds, both entries' heats, the record before
NAME.webp    test pictures, and below each what the entry makes of it
"""

from __future__ import annotations

import ast
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.utils import make_grid

from labcourse.speedrun.entry import SIZE
from labcourse.speedrun.race_judge import Heat, RaceJudge
from labkit.data.batches import to_uint8
from labkit.data.images import read_picture, write_picture
from labkit.errors import LabkitError
from labkit.stamp import stamp
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


def check_name(name: str, folder: Path = FOLDER) -> None:
    """Raises `LabkitError` if no record can be written under this name."""
    if not folder.is_dir():
        raise LabkitError(f"{folder} is not there: records are kept in a clone of labkit. Run the judge in a clone.")
    if not name.isidentifier() or (folder / f"{name}.json").exists():
        raise LabkitError(f"--submit {name}: give a new name of letters, digits and underscores, such as my_entry.")


def submit(
    name: str,
    text: str,
    heats: Sequence[Heat],
    before: str | None,
    heats_before: Sequence[Heat],
    judge: RaceJudge,
    folder: Path = FOLDER,
) -> Path:
    """Writes a record onto the ladder, and returns its .json file.

    Raises:
        LabkitError: as `check_name`, or it cannot be written.
    """
    check_name(name, folder)
    file = folder / f"{name}.json"
    record = {
        "name": name,
        "difference": (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0],
        "board": judge.device,
        "rung": len(records(judge.device, folder)) + 1,
        "seconds": statistics.median(heat.seconds for heat in heats),
        "test_seed": judge.test_seed,
        "heats": [asdict(heat) for heat in heats],
        "before": before,
        "heats_before": [asdict(heat) for heat in heats_before],
        "stamp": stamp() | {"threads": 1},  # of the processes in which entries train
    }
    apples, oranges = judge.scenes.test_a, to_uint8(judge.pictures[text])
    both = torch.cat([apples[: len(oranges)], oranges])
    write_picture(make_grid(both, nrow=len(oranges), padding=0), folder / f"{name}.webp")
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return file


def pictures(name: str, folder: Path = FOLDER) -> tuple[Tensor, Tensor]:
    """Test pictures of a record, and what its entry made of them: ``uint8`` (N, 3, 64, 64) each."""
    rows = read_picture(folder / f"{name}.webp").unfold(1, SIZE, SIZE).unfold(2, SIZE, SIZE)  # (3, 2, N, 64, 64)
    apples, oranges = rows.permute(1, 2, 0, 3, 4)
    return apples, oranges
