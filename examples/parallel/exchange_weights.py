"""Processes that exchange weights now and then instead of gradients in every step, for a slow network between them.

    torchrun --nproc-per-node=3 examples/parallel/exchange_weights.py apart out/apart
    torchrun --nproc-per-node=2 examples/parallel/exchange_weights.py averaged out/averaged

The first starts a process for each module. In the second each process trains the whole model, and weights are averaged.
Both are other algorithms than training in one process: see notebook 11.
"""

from pathlib import Path

import torch
import typer
from apart import apart
from averaging import OUTER, averaged

import labkit
from labtrace.errors import check_known


def main(how: str, out: Path, every: int = 64, steps: int = 2000, size: int = 64, width: int = 16) -> None:
    """Trains fruit; `how` is "apart" or "averaged"."""
    check_known("way", how, ("apart", "averaged"))
    with labkit.ranks.process_group():
        torch.manual_seed(0)  # the same first weights in each process
        if how == "averaged":
            model = labkit.CycleGAN(**{**labkit.recipes.FRUIT.model, "ngf": width, "ndf": width})
            step = averaged(model, average_every=every, outer=OUTER)
        else:
            model = labkit.DeviationGAN(ngf=width, ndf=width, blocks=3)
            step = apart(model, exchange_every=every)
        batch_size = labkit.ranks.count() if how == "averaged" else 1
        labkit.fit(step, labkit.fruit(size=size), steps, batch_size, checkpoint=out)


if __name__ == "__main__":
    typer.run(main)
