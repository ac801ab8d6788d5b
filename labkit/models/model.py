"""The base of every model: its networks, players, pools, and the batches it takes. A step knows no more of a model."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from labkit.errors import DataError
from labkit.models.pool import Pool
from labkit.networks.layers import Generator


class Model(nn.Module):
    """Networks that learn to translate between two domains from unpaired pictures.

    Attributes:
        kind: the name of the class, which classes derived from it keep.
        step_class: the training step of this model, from `labkit.models.step.Step`.
        loss_names: all its losses, in the order they are reported in; those that a step of your own adds follow.
        settings: the arguments it was made with; made with them again it has the same networks.
        directions: those it translates, of "AtoB" and "BtoA".
        size_multiple, min_size: pictures to train on have sides that are multiples of `size_multiple` and at least
            `min_size` pixels.
        parts: names of its networks, for messages.
        pools: by name.
        own: names of those networks that are not labkit's but the caller's.
    """

    kind: str
    step_class: type[Any]
    loss_names: tuple[str, ...]
    settings: dict[str, Any]
    directions: tuple[str, ...] = ("AtoB", "BtoA")
    size_multiple: int
    min_size: int
    parts: str
    pools: dict[str, Pool]
    own: tuple[str, ...] = ()

    def players(self) -> dict[str, list[nn.Parameter]]:
        """The weights of each player, by its name, in the order in which they learn."""
        raise NotImplementedError

    def learning_rates(self) -> dict[str, float]:
        """Adam's learning rate for each player."""
        raise NotImplementedError

    def translator(self, direction: str = "AtoB") -> Generator:
        """The network that translates "AtoB" or "BtoA": (B, 3, H, W) in [-1, 1] in and out."""
        raise NotImplementedError

    def check_networks(self, pictures: Tensor) -> None:
        """Raises `LabkitError` if own networks do not do what they should with pictures (1, 3, H, W)."""

    def check_batch(self, real_a: Tensor, real_b: Tensor) -> None:
        """Raises `DataError` if the networks cannot take these pictures. Looks at shapes only: no synchronisation."""
        weight = next(self.parameters())
        for name, pictures in (("real_a", real_a), ("real_b", real_b)):
            if pictures.dim() != 4 or pictures.shape[1] != 3:
                raise DataError(f"{name} has shape {tuple(pictures.shape)}; a batch has shape (B, 3, H, W).")
            if pictures.dtype != weight.dtype:
                raise DataError(
                    f"{name} is {pictures.dtype}, the networks are {weight.dtype}. "
                    "Turn uint8 pictures into [-1, 1] with labkit.to_float, or convert with .to(...)."
                )
            if pictures.device != weight.device:
                raise DataError(
                    f"{name} is on {pictures.device}, the networks are on {weight.device}: move one of them with .to()."
                )
            self.check_size(pictures.shape[2], pictures.shape[3], where=name)
        if len(real_a) != len(real_b):
            raise DataError(f"real_a holds {len(real_a)} pictures, real_b {len(real_b)}: give as many of each.")

    @staticmethod
    def check_range(real_a: Tensor, real_b: Tensor) -> None:
        """Raises `DataError` if pictures leave [-1, 1]. The host waits for the device to find out.

        Warns:
            UserWarning: the darkest numbers are just above 0, so the pictures are probably scaled to [0, 1].
        """
        darkest, brightest = 1.0, -1.0
        for name, pictures in (("real_a", real_a), ("real_b", real_b)):
            low, high = (bound.item() for bound in pictures.aminmax())
            if not (-1.001 <= low and high <= 1.001):
                raise DataError(
                    f"{name} runs from {low:g} to {high:g}; the networks expect [-1, 1]. "
                    "labkit.to_float converts uint8 pictures to that range."
                )
            darkest, brightest = min(darkest, low), max(brightest, high)
        if 0 <= darkest < 0.02 and brightest > 0.5:  # a bright picture in [-1, 1] has nothing so near to 0
            warnings.warn(
                "no number in the first batch is below 0, and black seems to be 0: are the pictures in [0, 1]? The "
                "networks expect black at -1 and white at 1: scale with 2 * pictures - 1.",
                stacklevel=3,
            )

    def check_size(self, height: int, width: int, where: str = "the batch") -> None:
        """Raises `DataError` if the networks cannot be trained on pictures of this size."""
        if height % self.size_multiple or width % self.size_multiple or min(height, width) < self.min_size:
            raise DataError(
                f"{where}: pictures of {height}x{width} pixels do not fit these networks ({self.parts}): both sides "
                f"must be multiples of {self.size_multiple} and at least {self.min_size}. Choose another size or "
                "generator."
            )


@torch.no_grad()
def run_network(network: nn.Module, pictures: Tensor) -> Tensor:
    """Translated pictures, (N, 3, H, W) in [-1, 1] in and out, on the CPU and in ``float32``.

    Works in evaluation mode on 16 pictures at a time, and leaves the network in the mode it was in.
    """
    weight = next(network.parameters())
    was_training = network.training
    network.eval()
    try:
        parts = [network(part.to(weight)).float().cpu() for part in pictures.split(16)]
    finally:
        network.train(was_training)
    return torch.cat(parts)
