"""How good a translation is, and how good it is after how many images, seconds and FLOPs, over several seeds.

Only fruit can be measured, since its test scenes exist with either fruit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labkit.data.batches import UnpairedData, to_float
from labkit.data.fruit import FruitData
from labkit.errors import LabkitError
from labkit.models.model import Model, run_network

if TYPE_CHECKING:
    import pandas

GOAL = {"fg": 9.0, "bg": 4.0}  # percent: from here on people see oranges in the same scene


def quality(model: Model, data: UnpairedData) -> dict[str, float]:
    """How far translated apples are from the truth, in percent of the range from black to white. Lower is better.

    Returns:
        ``{"fg": ..., "bg": ..., "changed": ...}``. fg: inside the outline of the fruit, the mean difference from the
        same scene with an orange. bg: outside the outline, the mean difference from the original scene. A model that
        changes nothing scores bg = 0, so the two are never added up. changed: inside the outline, the mean difference
        between an orange and its translation, which could have left it alone.

    Raises:
        LabkitError: `data` has no paired truth. Only `labkit.fruit` has.
    """
    if not isinstance(data, FruitData):
        raise LabkitError(f"data={data.name!r} has no truth to compare with, which labkit.fruit() has.")
    return score(functools.partial(run_network, model.translator("AtoB")), data)


def score(to_orange: Callable[[Tensor], Tensor], data: FruitData) -> dict[str, float]:
    """`quality` of any function from pictures, (N, 3, H, W) in [-1, 1], to translated ones."""
    apples, oranges = to_float(data.test_a), to_float(data.test_b)
    translated = to_orange(apples)
    inside = data.test_mask.float()
    return {
        "fg": mean_difference(translated, oranges, inside),
        "bg": mean_difference(translated, apples, 1 - inside),
        "changed": mean_difference(to_orange(oranges), oranges, inside),
    }


def mean_difference(a: Tensor, b: Tensor, where: Tensor) -> float:
    """Mean absolute difference of pictures in percent of their range.

    Args:
        a, b: (N, 3, H, W) in [-1, 1].
        where: (N, 1, H, W), 1 at the pixels that count.
    """
    difference = (a - b).abs().mean(dim=1, keepdim=True) / 2
    return float(100 * (difference * where).sum() / torch.clamp(where.sum(), min=1))


def time_to_quality(curves: pandas.DataFrame, fg: float = GOAL["fg"], bg: float = GOAL["bg"]) -> pandas.DataFrame:
    """How much each run needed until fg and bg were at most these, in percent, in two measurements in a row.

    Once could be luck, since a GAN's quality goes up and down during training. The second measurement counts.

    Args:
        curves: from `labcourse.study`.

    Returns:
        One row a run, by name and seed: images, seconds and flops, all NaN for a run that never reached the goal.
    """
    passed = (curves["fg"] <= fg) & (curves["bg"] <= bg)
    run = [curves["name"], curves["seed"]]
    twice = passed & passed.groupby(run).shift(fill_value=False)
    return curves[["images", "seconds", "flops"]].astype(float).where(twice).groupby(run, sort=False).first()


def best_within(curves: pandas.DataFrame, seconds: float) -> pandas.DataFrame:
    """The best measurement of each run in its first `seconds`: the one with the smallest `shortfall`.

    Args:
        curves: from `labcourse.study`.

    Returns:
        One row a run, by name and seed: the columns of `curves`.

    Raises:
        LabkitError: a run has no measurement that early.
    """
    first = curves.groupby(["name", "seed"])["seconds"].min()
    late = first.index[first > seconds]
    if len(late):
        name, seed = late[0]
        raise LabkitError(f"seconds={seconds:g}: {name}, seed {seed}, has no look that early. Give more seconds.")
    early = curves[curves["seconds"] <= seconds]
    best = shortfall(early).groupby([early["name"], early["seed"]], sort=False).idxmin()
    return curves.loc[best].set_index(["name", "seed"])


def within_spread(scores: pandas.DataFrame, baseline: str) -> pandas.Series:
    """Which names are no worse than the spread of `baseline` over its seeds: True or False, by name.

    A name is within the spread if the median over its seeds is at most the worst of the baseline's seeds, in fg and in
    bg. With few seeds this is a weak claim: a baseline with more seeds has a larger spread.

    Args:
        scores: fg and bg in percent, one row a run, by name and seed.
        baseline: one of the names.
    """
    scores = scores[list(GOAL)]
    medians = scores.groupby("name", sort=False).median()
    return (medians <= scores.loc[baseline].max()).all(axis=1)


def shortfall(measurements: pandas.DataFrame) -> pandas.Series:
    """How far each measurement is from the goal: fg and bg as shares of their goals, of which the larger counts.

    A measurement with 1 or less has reached the goal. The larger share counts, since a good fg cannot make up for a
    bad bg.
    """
    return (measurements[list(GOAL)] / list(GOAL.values())).max(axis=1)
