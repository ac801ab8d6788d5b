"""What takes an hour to learn: training runs on the fruit that are shipped with the lab, in data/."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from labkit import measure
from labkit.course.shipped import DATA
from labkit.data.images import read_picture
from labkit.errors import LabkitError
from labkit.model import Model
from labkit.models.deviation import IdentityWarning
from labkit.training.checkpoints import load_model

if TYPE_CHECKING:
    import pandas

STUDIED = 9  # test pictures in each row that tools/learn.py kept


def study(name: str) -> pandas.DataFrame:
    """What `python tools/learn.py` measured of many runs on the fruit, as `labkit.learning_curves` gives it.

    Args:
        name: "one_generator", "ablation", "deviation" or "lighter"; or "full_size", times of single steps, as
            `labkit.compare` gives them (tools/full_size.py).

    Raises:
        LabkitError: there is no such study here; an installed package, other than a clone, has none.
    """
    return measure.load(_studied(f"{name}.json"))


def study_pictures(name: str) -> dict[str, Tensor]:
    """The best pictures of each run of a study in its first 100 seconds, by the run's name, ``uint8``.

    Each is of shape (1 + seeds, 9, 3, 64, 64): a row of test pictures, six apples and three oranges, then for each seed
    what the run made of them, oranges from apples.

    Raises:
        LabkitError: as `study`.
    """
    files = sorted(_studied(name).glob("*.png"))
    return {file.stem: _cut(read_picture(file)) for file in files}


def deviation_models() -> dict[float, Model]:
    """Models of the study "deviation", trained on the fruit, by the weight of their deviation loss.

    Raises:
        LabkitError: as `study`.
    """
    folders = sorted((DATA / "checkpoints").glob("deviation_*"))
    if not folders:
        raise LabkitError(f"{DATA / 'checkpoints'}: no models here. Use a clone of labkit, or train: tools/learn.py.")
    with warnings.catch_warnings(action="ignore", category=IdentityWarning):  # that is what they show
        return {float(folder.name.removeprefix("deviation_")): load_model(folder) for folder in folders}


def _studied(what: str) -> Path:
    path = DATA / "quality" / what
    if not path.exists():
        raise LabkitError(f"{path}: there is no such study here. Use a clone of labkit, or measure: tools/learn.py.")
    return path


def _cut(grid: Tensor) -> Tensor:
    """(3, rows * size, 9 * size) -> (rows, 9, 3, size, size)."""
    size = grid.shape[-1] // STUDIED
    return grid.unflatten(2, (STUDIED, size)).unflatten(1, (-1, size)).permute(1, 3, 0, 2, 4)
