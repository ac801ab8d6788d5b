"""Networks of your own in the place of labkit's: two of each kind, which `labkit.CycleGAN` trains as its own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from labkit.errors import LabkitError

Own = nn.Module | Callable[[], nn.Module] | tuple[nn.Module, nn.Module]

MARK = "own: "  # begins the name that a network of your own has in settings and checkpoints
# Of a network that does not say so itself: most halve the picture twice, and a smaller one leaves nothing to judge.
MULTIPLE, LEAST = 4, 16


def pair(argument: str, given: Own) -> tuple[nn.Module, nn.Module]:
    """The networks for both directions.

    Args:
        argument: "generator" or "discriminator", for messages.
        given: a module, of which both are copies; a class or function without arguments, called twice; or two modules.

    Raises:
        LabkitError: it is none of these, the two share weights, have none or not yet, or cannot be copied, or their
            `multiple` or `least` is no whole number of at least 1.
    """
    if isinstance(given, nn.Module):
        networks = (given, given)
    elif isinstance(given, tuple) and len(given) == 2:
        networks = given
    elif callable(given):
        networks = (given(), given())
    else:
        raise LabkitError(
            f"{argument}={given!r:.60}: give a name, an nn.Module, a tuple of two, or a function that makes one."
        )
    for network in networks:
        if not isinstance(network, nn.Module) or next(network.parameters(), None) is None:
            raise LabkitError(
                f"{argument}: {network!r:.60} is no nn.Module with weights, so there is nothing to train."
            )
        if any(nn.parameter.is_lazy(weight) for weight in network.parameters()):
            raise LabkitError(
                f"{argument}: {type(network).__name__} has lazy layers, whose weights are not made yet. Run it once on "
                "a picture before you give it."
            )
    if not isinstance(given, nn.Module) and set(networks[0].parameters()) & set(networks[1].parameters()):
        raise LabkitError(
            f"{argument}: the two networks share weights, so they would be trained as one. Give the module itself, of "
            "which each direction gets a copy, or a function that makes a new module at every call."
        )
    first, second = (_with_sizes(argument, _copied(argument, network)) for network in networks)
    return first, second


def name_of(networks: tuple[nn.Module, nn.Module]) -> str:
    """The name of such networks in settings and checkpoints: that of their class, or of both classes."""
    return MARK + ", ".join(dict.fromkeys(type(network).__name__ for network in networks))


def is_own(setting: object) -> bool:
    """Whether a setting is the name of networks of one's own."""
    return isinstance(setting, str) and setting.startswith(MARK)


def _copied(argument: str, network: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(network)
    except Exception as error:  # of code that is not labkit's
        raise LabkitError(
            f"{argument}: {type(network).__name__} cannot be copied ({error}). Give a function that makes one."
        ) from error


def _with_sizes(argument: str, network: nn.Module) -> nn.Module:
    for name, usual in (("multiple", MULTIPLE), ("least", LEAST)):
        number = getattr(network, name, usual)
        if not isinstance(number, int) or number < 1:
            raise LabkitError(
                f"{argument}: {type(network).__name__}.{name} is {number!r:.60}. It says which sides of pictures the "
                "network takes, and has to be a whole number, at least 1."
            )
        setattr(network, name, number)
    return network


def check_translates(network: nn.Module, picture: Tensor, name: str) -> None:
    """Tries a generator of your own on one picture, (1, 3, H, W).

    Raises:
        LabkitError: the result is no picture of the same size.
    """
    result = _evaluated(network, picture)
    if not isinstance(result, Tensor) or result.shape != picture.shape:
        found = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
        raise LabkitError(
            f"{name} ({type(network).__name__}) turns a picture of shape {tuple(picture.shape)} into {found}. A "
            "generator gives back one tensor of the same shape. If it takes fewer sizes, name them in its class: "
            "multiple = 32, for sides that are multiples of 32, and least, for the smallest."
        )


def check_judges(network: nn.Module, picture: Tensor, name: str) -> None:
    """Tries a discriminator of your own on one picture, (1, 3, H, W).

    Raises:
        LabkitError: the result is no tensor.
    """
    result = _evaluated(network, picture)
    if not isinstance(result, Tensor):
        raise LabkitError(
            f"{name} ({type(network).__name__}) gives back a {type(result).__name__}. A discriminator gives back one "
            "tensor of verdicts: join several, for example with torch.cat([v.flatten(1) for v in verdicts], 1)."
        )


@torch.no_grad()
def _evaluated(network: nn.Module, picture: Tensor) -> object:
    """The result in evaluation mode; the network draws from random numbers that nobody else draws from."""
    was_training = network.training
    with torch.random.fork_rng([picture.device] if picture.is_cuda else []):
        result = network.eval()(picture)
    network.train(was_training)
    return result


def changed_buffer(network: nn.Module) -> str | None:
    """The name of a buffer that each pass in training changes, such as a running mean; None if there is none."""
    network, pictures = _trial(network)
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    _outputs(network, pictures)
    return next((name for name, buffer in network.named_buffers() if not torch.equal(buffer, before[name])), None)


def batch_matters(network: nn.Module) -> str | None:
    """Why it matters which pictures pass through a network of your own together, or how often; None if it does not.

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
    multiple, least = int(network.multiple), int(network.least)  # type: ignore[arg-type]
    side = math.ceil(max(least, 64) / multiple) * multiple
    noise = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return network, noise.to(next(network.parameters()))


@torch.no_grad()
def _outputs(network: nn.Module, *batches: Tensor) -> Tensor:
    device = batches[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        return torch.cat([network(batch) for batch in batches])
