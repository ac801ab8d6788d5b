"""Is the translation any good? On fruit that can be measured, since its test scenes exist with either fruit."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.data.batches import UnpairedData, to_float
from labkit.data.fruit import FruitData
from labkit.errors import LabkitError
from labkit.model import Model, run_network


def quality(model: Model, data: UnpairedData) -> dict[str, float]:
    """How far translated apples are from the truth, in percent of the range from black to white; lower is better.

    Returns:
        ``{"fg": ..., "bg": ..., "changed": ...}``. fg: inside the outline of the fruit, the mean difference from the
        same scene with an orange. bg: outside it, the mean difference from the scene as it was. Leaving a picture as
        it is scores 0 there, which is why the two are never added up. changed: how far an orange, which could stay
        what it is, is from itself after the same translation, inside the outline.

    Raises:
        LabkitError: `data` has no paired truth; only `labkit.fruit` has.
    """
    if not isinstance(data, FruitData):
        raise LabkitError(
            f"data {data.name!r} has no truth to compare with: quality is measured on labkit.fruit(). "
            "For pictures of your own, look at the sample grids of the run."
        )
    apples, oranges = to_float(data.test_a), to_float(data.test_b)
    to_orange = model.translator("AtoB")
    translated = run_network(to_orange, apples)
    inside = data.test_mask.float()
    return {
        "fg": mean_difference(translated, oranges, inside),
        "bg": mean_difference(translated, apples, 1 - inside),
        "changed": mean_difference(run_network(to_orange, oranges), oranges, inside),
    }


def mean_difference(a: Tensor, b: Tensor, where: Tensor) -> float:
    """Mean absolute difference of pictures in [-1, 1], (N, 3, H, W), over the pixels that `where` (N, 1, H, W)
    marks with 1; in percent of the range."""
    difference = (a - b).abs().mean(dim=1, keepdim=True) / 2
    return float(100 * (difference * where).sum() / torch.clamp(where.sum(), min=1))
