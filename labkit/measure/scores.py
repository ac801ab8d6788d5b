"""Scores of translations: FID and KID, by the package torchmetrics, and the scores of a run while it trains."""

from __future__ import annotations

import csv
import shutil
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from labkit.data.batches import Pictures, UnpairedData, to_float, to_uint8
from labkit.data.folders import PictureFiles
from labkit.data.fruit import FruitData
from labkit.data.images import find_pictures
from labkit.devices import pick_device
from labkit.errors import DataError, explained
from labkit.measure.quality import GOAL, quality
from labkit.models.model import Model, run_network
from labkit.training import checkpoints
from labkit.training.callbacks import Callback, in_colours
from labkit.training.run import Run
from labtrace.files import atomic_write

FILE = "scores.csv"
BEST = "best.pt"  # the checkpoint with the lowest first score
SUBSET_SIZE = 1000  # pictures in each of KID's 100 subsets, as torchmetrics has it


class Distances(NamedTuple):
    """FID, and KID with its standard deviation over subsets. Both are 0 or near it for pictures of the same kind."""

    fid: float
    kid: float
    kid_deviation: float


@torch.no_grad()
def fid_and_kid(
    real: Path | str | Pictures,
    fake: Path | str | Pictures,
    *,
    device: torch.device | str = "cpu",
) -> Distances:
    """The Frechet and the kernel Inception distance between two sets of pictures.

    Inception (of the package torch-fidelity, which resizes pictures to 299 by 299 pixels) turns each picture into 2048
    numbers. FID compares their means and covariances. KID, an unbiased estimate of the squared maximum mean discrepancy
    with a cubic kernel, takes the mean over 100 subsets of at most 1000 pictures. Sources: Heusel et al. 2017, section
    2 and appendix A1, and Binkowski et al. 2018, section 4.

    Compare values of FID only if they are of as many pictures: it falls with their number, and below 2048 pictures,
    whose covariance has not full rank, it is far too high. KID has no such bias.

    Args:
        real, fake: folders, or sets of ``uint8`` tensors (3, H, W), such as a tensor (N, 3, H, W), at least two each.
            Grey ones, (1, H, W), count as RGB.
        device: where Inception computes. Its weights, 95 MB, are downloaded once, into the cache of `torch.hub`.

    Raises:
        LabkitError: they cannot be downloaded.
        DataError: there are fewer than two pictures, or one cannot be read.
        ModuleNotFoundError: torchmetrics or torch-fidelity is not installed: the extra "score" names both.
    """
    from torchmetrics.image import FrechetInceptionDistance, KernelInceptionDistance
    from torchmetrics.wrappers import FeatureShare

    device = pick_device(device)
    sets = [PictureFiles(find_pictures(each)) if isinstance(each, Path | str) else each for each in (real, fake)]
    fewest = min(map(len, sets))
    if fewest < 2:
        raise DataError(f"{len(sets[0])} real and {len(sets[1])} fake pictures: FID and KID need at least two of each.")
    network = inception()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Metric `Kernel Inception Distance` will save all")
        kid = KernelInceptionDistance(feature=network, subset_size=min(SUBSET_SIZE, fewest))
    # each picture goes through the network once
    metrics = FeatureShare([FrechetInceptionDistance(feature=network), kid]).to(device)
    for pictures, is_real in zip(sets, (True, False), strict=True):
        for k in range(len(pictures)):  # one at a time, since they may differ in size
            metrics.update(in_colours(pictures[k][None]).to(device), real=is_real)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of the subsets
        values = metrics.compute()
    mean, deviation = values["KernelInceptionDistance"]
    return Distances(values["FrechetInceptionDistance"].item(), mean.item(), deviation.item())


def inception() -> nn.Module:
    """Inception with the weights that FID is defined with. Raises `LabkitError` if they cannot be downloaded."""
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3
    from torchmetrics.image.fid import NoTrainInceptionV3

    by_hand = f"Fetch {URL_INCEPTION_V3} on another machine, and put it into {torch.hub.get_dir()}/checkpoints."
    with explained("the weights of FID's Inception cannot be downloaded", by_hand):
        return NoTrainInceptionV3("inception-v3-compat", ["2048"])


class Scores(Callback):
    """Appends a row to ``scores.csv`` every few steps, and at the end of the run. Lower numbers are better.

    ``best.pt`` is a copy of the checkpoint with the lowest shortfall or KID. ``labkit.load_model`` takes its path.

    | column | meaning |
    |---|---|
    | step | the steps done |
    | shortfall | for fruit: the larger of fg and bg as shares of the goals |
    | fg, bg | for fruit: see `labkit.quality` |
    | kid, fid | for photographs: from the translated test pictures of A to the test pictures of B |

    Args:
        data: the run's pictures.
        every: steps between two rows.
    """

    def __init__(self, data: UnpairedData, every: int):
        self.data, self.every = data, every

    def saves(self, run: Run) -> bool:
        return run.folder is not None and (run.done % self.every == 0 or run.done >= run.steps)

    def on_start(self, run: Run) -> None:
        if run.folder is not None and not isinstance(self.data, FruitData):
            inception()  # or a run without its weights would end at the first score only
        if run.done >= run.steps:  # nothing is left to train, but an earlier call may have stopped before it scored
            self.on_step(run)
        if run.folder is not None and run.done > 0:  # a kill may have come between a checkpoint and its copy
            self.on_save(run, run.folder / checkpoints.FILE)

    def on_step(self, run: Run) -> None:
        if run.folder is None or not self.saves(run):
            return
        row = {"step": run.done, **score(run.translating, self.data)}
        with open(run.folder / FILE, "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)

    def on_save(self, run: Run, path: Path) -> None:
        if not (file := path.with_name(FILE)).exists():
            return
        with open(file, newline="", encoding="utf-8") as opened:
            _, *rows = csv.reader(opened)
        best = min(rows, key=lambda row: float(row[1]))
        if int(best[0]) == run.done:
            with atomic_write(path.with_name(BEST)) as part:
                shutil.copyfile(path, part)


@torch.no_grad()
def score(model: Model, data: UnpairedData) -> dict[str, float]:
    """The numbers by which translations from A to B are compared: lower is better. Raises what `fid_and_kid` does."""
    if isinstance(data, FruitData):
        scores = quality(model, data)
        return {"shortfall": max(scores[name] / goal for name, goal in GOAL.items()), **{n: scores[n] for n in GOAL}}
    network, device = model.translator("AtoB"), next(model.parameters()).device
    pictures = (data.test_a[k][None].to(device) for k in range(len(data.test_a)))
    fakes = [to_uint8(run_network(network, to_float(picture)))[0].cpu() for picture in pictures]
    distances = fid_and_kid(data.test_b, fakes, device=device)
    return {"kid": distances.kid, "fid": distances.fid}
