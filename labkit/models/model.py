"""The base of every model: its networks, players, pools and the batches it takes. A step needs no more of a model."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from labkit.data.batches import WITHIN
from labkit.errors import DataError
from labkit.models.pool import Pool
from labkit.networks.layers import Generator


class Model(nn.Module):
    """Networks that learn to translate between two domains from unpaired pictures.

    Attributes:
        kind: the name of the class, which classes derived from it keep.
        step_class: the training step of this model, from `labkit.models.step.Step`.
        loss_names: all its losses, in the order of reports. Losses that a custom step adds follow them.
        settings: the arguments it was made with, which make the same networks again.
        directions: the directions it translates, of "AtoB" and "BtoA".
        channels: of pictures of A, and of B.
        size_multiple, min_size: pictures to train on have sides that are multiples of `size_multiple` and at least
            `min_size` pixels.
        parts: names of its networks, for messages.
        pools: its pools of earlier fakes, by name.
        custom: names of the networks that are copies of the caller's.
    """

    kind: str
    step_class: type[Any]
    loss_names: tuple[str, ...]
    settings: dict[str, Any]
    directions: tuple[str, ...] = ("AtoB", "BtoA")
    channels: tuple[int, int] = (3, 3)
    size_multiple: int
    min_size: int
    parts: str
    pools: dict[str, Pool]
    custom: tuple[str, ...] = ()

    def players(self) -> dict[str, list[nn.Parameter]]:
        """The weights of each player, by its name, in the order in which they learn."""
        raise NotImplementedError

    def learning_rates(self) -> dict[str, float]:
        """Adam's learning rate for each player."""
        raise NotImplementedError

    def translator(self, direction: str = "AtoB") -> Generator:
        """The network that translates "AtoB" or "BtoA": pictures (B, C, H, W) in [-1, 1] in and out."""
        raise NotImplementedError

    def check(self, real_a: Tensor, real_b: Tensor, values: bool) -> None:
        """Checks a batch. With `values` it checks the numbers, too, for which the host waits for the device.

        Raises:
            DataError: the networks cannot take these pictures.
            LabkitError: a custom network does not do its part.

        Warns:
            UserWarning: the pictures seem to be scaled to [0, 1].
        """
        weight = next(self.parameters())
        for name, pictures, channels in (("real_a", real_a, self.channels[0]), ("real_b", real_b, self.channels[1])):
            if pictures.dim() != 4 or pictures.shape[1] != channels or len(pictures) != len(real_a):
                raise DataError(
                    f"{name} has shape {tuple(pictures.shape)}; a batch has shape (B, {channels}, H, W), with as many "
                    "pictures of each domain."
                )
            if pictures.dtype != weight.dtype or pictures.device != weight.device:
                raise DataError(
                    f"{name} is {pictures.dtype} on {pictures.device}, the networks are {weight.dtype} on "
                    f"{weight.device}: convert with .to(...), and uint8 pictures with labkit.to_float."
                )
            self.check_size(pictures.shape[2], pictures.shape[3], where=name)
            if values:
                darkest, brightest = (bound.item() for bound in pictures.aminmax())
                if not (-WITHIN <= darkest and brightest <= WITHIN):
                    raise DataError(
                        f"{name} runs from {darkest:g} to {brightest:g}; the networks expect [-1, 1]. labkit.to_float "
                        "converts uint8 pictures to that range."
                    )
                if 0 <= darkest < 0.02 and brightest > 0.5:  # a bright picture in [-1, 1] has nothing so near to 0
                    warnings.warn(
                        f"no number of the first batch is below 0 in {name}, and black seems to be 0: is it in [0, 1]? "
                        "The networks expect black at -1 and white at 1: scale with 2 * pictures - 1.",
                        stacklevel=4,
                    )

    def check_size(self, height: int, width: int, where: str = "the batch") -> None:
        """Raises `DataError` if the networks cannot be trained on pictures of this size."""
        if height % self.size_multiple or width % self.size_multiple or min(height, width) < self.min_size:
            raise DataError(
                f"{where}: pictures of {height}x{width} pixels do not fit these networks ({self.parts}): both sides "
                f"must be multiples of {self.size_multiple} and at least {self.min_size}. Choose another size or "
                "generator."
            )


def trainable(*networks: nn.Module) -> list[nn.Parameter]:
    """The weights of these networks, frozen ones left out, and those that they share once."""
    weights = [weight for network in networks for weight in network.parameters() if weight.requires_grad]
    return list(dict.fromkeys(weights))


@torch.no_grad()
def run_network(network: nn.Module, pictures: Tensor) -> Tensor:
    """The network's translations of pictures, (N, C, H, W) in [-1, 1] in and out, on the CPU and in ``float32``.

    Works in evaluation mode on 16 pictures at a time, and leaves the network's mode and random numbers as they were.
    """
    weight = next(network.parameters())
    was_training = network.training
    network.eval()
    try:
        with torch.random.fork_rng([weight.device] if weight.is_cuda else []):
            parts = [network(part.to(weight)).float().cpu() for part in pictures.split(16)]
    finally:
        network.train(was_training)
    return torch.cat(parts)
