"""The ladder: the records so far, each with its entry's text, its times, and its pictures, in data/speedrun.

NAME.py      the entry
NAME.json    the stamp, the seeds, both entries' heats, the record before
NAME.webp    test pictures, and below each what the entry makes of it
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.data.batches import to_uint8
from labkit.data.images import write_picture
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.speedrun.judge import Heat, Judge
from labkit.stamp import stamp

FOLDER = Path(__file__).parents[2] / "data" / "speedrun"  # in a clone; an installed package has none
BOARDS = ("cpu", "cuda")


def records(board: str = "cpu", folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The records of a board, the slowest first, as they were written."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    return sorted((one for one in found if one["board"] == board), key=lambda one: one["rung"])


def source(name: str, folder: Path = FOLDER) -> str:
    """The text of an entry that made a record. Raises `LabkitError` if there is none of this name."""
    file = folder / f"{name}.py"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.py"))) or "none"
        raise LabkitError(f"{name!r} is no record. There are: {known}.")
    return file.read_text(encoding="utf-8")


def submit(
    name: str,
    text: str,
    heats: Sequence[Heat],
    before: str | None,
    heats_before: Sequence[Heat],
    judge: Judge,
    folder: Path = FOLDER,
) -> Path:
    """Writes a record onto the ladder, and returns its .json file.

    Raises:
        LabkitError: there is one of this name already, or it cannot be written.
    """
    file = folder / f"{name}.json"
    if file.exists():
        raise LabkitError(f"{file}: there is a record of this name. Choose another one.")
    record = {
        "name": name,
        "board": judge.device,
        "rung": len(records(judge.device, folder)) + 1,
        "seconds": statistics.median(heat.seconds for heat in heats),
        "test_seed": judge.test_seed,
        "heats": [asdict(heat) for heat in heats],
        "before": before,
        "heats_before": [asdict(heat) for heat in heats_before],
        "stamp": stamp(),
    }
    with atomic_write(folder / f"{name}.py") as part:
        part.write_text(text, encoding="utf-8")
    write_picture(pictures(judge, text), folder / f"{name}.webp")
    with atomic_write(file) as part:
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return file


def pictures(judge: Judge, text: str) -> Tensor:
    """Test pictures in a row, and below them what the entry made of them: ``uint8`` (3, H, W)."""
    from torchvision.utils import make_grid

    apples = judge.scenes.test_a[: len(judge.pictures[text])]
    return make_grid(torch.cat([apples, to_uint8(judge.pictures[text])]), nrow=len(apples), pad_value=255)
