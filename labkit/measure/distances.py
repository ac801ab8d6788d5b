"""The distance of translations from real pictures: FID and KID, by the package torchmetrics."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from labkit.data.batches import Pictures
from labkit.data.folders import PictureFiles
from labkit.data.images import find_pictures
from labkit.devices import pick_device
from labkit.errors import DataError, LabkitError

FEW = 2048  # as many numbers describe a picture; with fewer pictures their covariance has not full rank
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
    weights: Path | str | None = None,
    features: nn.Module | None = None,
) -> Distances:
    """The Frechet and the kernel Inception distance between two sets of pictures.

    Inception (of the package torch-fidelity, which resizes pictures to 299 by 299 pixels) turns each picture into 2048
    numbers. FID compares their means and covariances; KID, an unbiased estimate of the squared maximum mean discrepancy
    with a cubic kernel, takes the mean over 100 subsets of at most 1000 pictures. Compare values only of as many
    pictures: FID falls with their number. Sources: Heusel et al. 2017, section 2 and appendix A1; Binkowski et al.
    2018, section 4.

    Args:
        real, fake: folders, or sets of ``uint8`` tensors (3, H, W), such as a tensor (N, 3, H, W); at least two each.
        device: where Inception computes.
        weights: the file of Inception's weights, if it cannot be downloaded; None downloads it once, 95 MB.
        features: another network in Inception's place: ``uint8`` (B, 3, H, W) in, (B, number) out.

    Raises:
        LabkitError: torchmetrics or torch-fidelity is not installed, or Inception's weights cannot be had.
        DataError: there are fewer than two pictures, or one cannot be read.

    Warns:
        UserWarning: there are so few pictures that FID says more about their number than about them.
    """
    sets = {"real": _opened(real), "fake": _opened(fake)}
    for name, pictures in sets.items():
        if len(pictures) < 2:
            raise DataError(f"{name}: {len(pictures)} pictures; FID and KID need at least two, better thousands.")
    fewest = min(map(len, sets.values()))
    both = _metrics(weights, features, min(SUBSET_SIZE, fewest)).to(pick_device(device))
    if features is None and fewest < FEW:
        warnings.warn(
            f"{fewest} pictures: with fewer than {FEW} FID is far too high, and comparable only with that of as many. "
            "KID has no such bias.",
            stacklevel=2,
        )
    for name, pictures in sets.items():
        for batch in _batches(pictures):
            both.update(batch.to(pick_device(device)), real=name == "real")
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of the subsets
        found = both.compute()
    kid, deviation = found["KernelInceptionDistance"]
    return Distances(found["FrechetInceptionDistance"].item(), kid.item(), deviation.item())


def _metrics(weights: Path | str | None, features: nn.Module | None, subset_size: int) -> Any:
    """FID and KID, which share one network: each picture goes through it once."""
    try:
        from torchmetrics.image import FrechetInceptionDistance, KernelInceptionDistance
        from torchmetrics.wrappers import FeatureShare

        network = _inception(weights) if features is None else features.eval()
    except ModuleNotFoundError as error:
        raise LabkitError(
            f"FID and KID need two packages ({error}): pip install torchmetrics torch-fidelity, or labkit's extra "
            "'score'."
        ) from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Metric `Kernel Inception Distance` will save all")
        kid = KernelInceptionDistance(feature=network, subset_size=subset_size)
    return FeatureShare([FrechetInceptionDistance(feature=network), kid])


def _inception(weights: Path | str | None) -> nn.Module:
    """Inception with the weights that FID is defined with. Raises `LabkitError` if they cannot be had."""
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3
    from torchmetrics.image.fid import NoTrainInceptionV3

    try:
        return NoTrainInceptionV3("inception-v3-compat", ["2048"], None if weights is None else str(weights))
    except Exception as error:  # of a download, or of a file that may hold anything
        if weights is not None:
            raise LabkitError(f"{weights}: these are not the weights of FID's Inception ({error}).") from error
        raise LabkitError(
            f"Inception's weights cannot be downloaded ({error}). Fetch {URL_INCEPTION_V3} on another machine, and "
            "name the file: --weights, or weights=..."
        ) from error


def _opened(pictures: Path | str | Pictures) -> Pictures:
    return PictureFiles(find_pictures(pictures)) if isinstance(pictures, Path | str) else pictures


def _batches(pictures: Pictures, most: int = 32) -> Iterator[Tensor]:
    """The pictures in batches (B, 3, H, W), neighbours of one size together."""
    batch: list[Tensor] = []
    for i in range(len(pictures)):
        picture = pictures[i]
        if picture.dtype != torch.uint8:
            raise DataError(f"picture {i} is {picture.dtype}; uint8 is needed. labkit.to_uint8 converts from [-1, 1].")
        if batch and (len(batch) == most or picture.shape != batch[0].shape):
            yield torch.stack(batch)
            batch = []
        batch.append(picture)
    yield torch.stack(batch)
