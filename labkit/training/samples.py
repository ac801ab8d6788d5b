"""Samples: translations of a few test pictures during a run, looked at and written as a grid."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from labkit.data.batches import UnpairedData, to_float, to_uint8
from labkit.data.images import write_picture
from labkit.errors import DataError
from labkit.models.model import run_network
from labkit.training.run import Run

COLLAPSED = 0.1  # outputs count as all alike if they differ by less than this share of their inputs' differences


class CollapseWarning(UserWarning):
    """A generator gives almost the same picture for every input."""


def sample(run: Run, data: UnpairedData, n: int = 4) -> Tensor:
    """Translates `n` test pictures of each domain: warns if the results are all alike, and writes a grid of them.

    Returns:
        the grid, a ``uint8`` tensor of shape (3, H, W): pictures of A above their translations, then, if the model
        translates those, pictures of B above theirs.
    """
    rows = []
    for direction in run.model.directions:
        pictures = data.test_a if direction == "AtoB" else data.test_b
        real = to_float(torch.stack([pictures[i] for i in range(min(n, len(pictures)))]))
        fake = run_network(run.model.translator(direction), real)
        rows += [real, fake]
        if len(real) > 1 and fake.std(0).mean() < COLLAPSED * real.std(0).mean():
            warnings.warn(
                f"step {run.done}: {direction} gives nearly the same picture for different inputs. If that does not "
                "pass, the generator has collapsed: is the cycle loss switched off, or the learning rate too high?",
                CollapseWarning,
                stacklevel=2,
            )
    from torchvision.utils import make_grid  # takes a second, and most processes never look at pictures

    grid = make_grid(to_uint8(torch.cat(rows)), nrow=len(rows[0]), pad_value=255)
    if run.folder is not None:
        try:
            write_picture(grid, sample_file(run, run.folder))
        except DataError as error:  # no reason to lose the training so far
            warnings.warn(f"step {run.done}: {error}", stacklevel=2)
    return grid


def sample_file(run: Run, folder: Path) -> Path:
    """Where the grid of this step is written."""
    return folder / "samples" / f"{run.done:06d}.png"
