"""Custom networks in the place of labkit's: of an nn.Module `labkit.CycleGAN` trains two copies."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError

MARK = "own: "  # begins the name that a custom network has in settings and checkpoints
# Of a network that does not say so itself: most halve the picture twice, and a smaller one leaves nothing to judge.
SIZE_MULTIPLE, MIN_SIZE = 4, 16


def two_copies(argument: str, network: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Copies of a custom network for both directions, with the attributes `size_multiple` and `min_size`.

    Raises:
        LabkitError: it is no module with weights; `argument` ("generator" or "discriminator") is named.
    """
    if not isinstance(network, nn.Module) or next(network.parameters(), None) is None:
        raise LabkitError(
            f"{argument}={network!r:.60}: give a name, or an nn.Module with weights to train. (Not its class: call it.)"
        )
    first, second = copy.deepcopy(network), copy.deepcopy(network)
    for one in (first, second):
        for name, usual in (("size_multiple", SIZE_MULTIPLE), ("min_size", MIN_SIZE)):
            setattr(one, name, getattr(one, name, usual))
    return first, second


def is_custom(setting: object) -> bool:
    """True if a setting is the name of a custom network."""
    return isinstance(setting, str) and setting.startswith(MARK)


@torch.no_grad()
def check_translates(network: nn.Module, picture: Tensor, name: str) -> None:
    """Tries a custom generator on one picture, (1, 3, H, W), with random numbers that nobody else draws from.

    Raises:
        LabkitError: the result is no picture of the same size, with which the losses would be wrong.
    """
    was_training = network.training
    with torch.random.fork_rng([picture.device] if picture.is_cuda else []):
        result = network.eval()(picture)
    network.train(was_training)
    if not isinstance(result, Tensor) or result.shape != picture.shape:
        found = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
        raise LabkitError(
            f"{name} ({type(network).__name__}) turns a picture of shape {tuple(picture.shape)} into {found}. A "
            "generator gives back one tensor of the same shape. If it takes fewer sizes, name them in its class: "
            "size_multiple = 32, for sides that are multiples of 32, and min_size, for the smallest."
        )


def changed_buffer(network: nn.Module) -> str | None:
    """The name of a buffer that each pass in training changes, such as a running mean; None if there is none."""
    network, pictures = _trial(network)
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    _outputs(network, pictures)
    return next((name for name, buffer in network.named_buffers() if not torch.equal(buffer, before[name])), None)


def batch_matters(network: nn.Module) -> str | None:
    """The reason why pictures may not be batched differently for a custom network; None if there is none.

    A copy is tried on noise, without dropout: its buffers should stay as they are, and two pictures should come out of
    one pass as they come out of two.
    """
    kind = type(network).__name__
    try:
        if changed := changed_buffer(network):
            return f"each pass of {kind} changes its buffer {changed!r}"
        copied, pictures = _trial(network)
        together, alone = _outputs(copied, pictures), _outputs(copied, *pictures.split(1))
    except Exception as error:  # of code that is not labkit's
        return f"{kind} fails with two pictures of noise ({error})"
    if torch.allclose(together, alone, rtol=1e-3, atol=1e-3):
        return None
    return f"{kind} gives a picture another result if another one is beside it"


def _trial(network: nn.Module) -> tuple[nn.Module, Tensor]:
    """A copy in training mode, though without dropout, and two small pictures of noise for it."""
    network = copy.deepcopy(network).train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.eval()
    multiple, smallest = int(network.size_multiple), int(network.min_size)  # type: ignore[arg-type]
    side = math.ceil(max(smallest, 64) / multiple) * multiple
    noise = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return network, noise.to(next(network.parameters()))


@torch.no_grad()
def _outputs(network: nn.Module, *batches: Tensor) -> Tensor:
    device = batches[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        return torch.cat([network(batch) for batch in batches])
