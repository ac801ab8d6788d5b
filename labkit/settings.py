"""The settings of the models, with their defaults and a sentence on each. The command line reads them without PyTorch.

They are the arguments of `labkit.CycleGAN` and `labkit.DeviationGAN`, and the options of `labkit train`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from labkit.errors import LabkitError

if TYPE_CHECKING:
    from torch import nn


def setting(default: Any, text: str) -> Any:
    """A field with its default and its sentence, which is also the help of its option."""
    return field(default=default, metadata={"text": text})


@dataclass(frozen=True)
class CycleGANSettings:
    """The arguments of `labkit.CycleGAN`. From Python, networks may also be modules of your own."""

    generator: str | nn.Module = setting(
        "resnet_9blocks",
        "resnet_9blocks, resnet_6blocks, resnet_3blocks, unet_256 or unet_128, or a light one: resnet_9blocks_narrow, "
        "..._tapered, ..._separable, ..._grouped or ..._inverted. With _resize, the first three avoid checkerboards.",
    )
    discriminator: str | nn.Module = setting("basic", "basic, n_layers or pixel.")
    ngf: int = setting(64, "Filters in the first layer of the generators.")
    ndf: int = setting(64, "Filters in the first layer of the discriminators.")
    n_layers: int = setting(3, "Strided layers of an n_layers discriminator.")
    norm: str = setting("instance", "instance, batch, none, or instance_blocks: residual blocks only.")
    channels_a: int = setting(3, "Channels of A: 3 for colours, 1 for grey.")
    channels_b: int = setting(3, "Channels of B.")
    lambda_a: float = setting(10.0, "Weight of the cycle A -> B -> A.")
    lambda_b: float = setting(10.0, "Weight of the cycle B -> A -> B.")
    lambda_identity: float = setting(0.5, "Weight of the identity loss, relative to lambda_a and lambda_b (0: none).")
    gan_mode: str = setting("lsgan", "lsgan, vanilla, or wgangp (no penalty).")
    pool_size: int = setting(50, "Earlier fakes that the discriminators may be shown (0: none).")


@dataclass(frozen=True)
class DeviationGANSettings:
    """The arguments of `labkit.DeviationGAN`."""

    ngf: int = setting(64, "Filters in the first layer of the encoder.")
    ndf: int = setting(64, "A quarter of the filters in the first layer of the discriminator of codes.")
    blocks: int = setting(9, "Blocks of a translator.")
    translators: int = setting(1, "1 (A to B only), or 2.")
    autoencoders: int = setting(1, "1 for both domains, or 2.")
    stage: str = setting("joint", "Who learns: joint (all), autoencoder (no other) or translation (the rest).")
    judged: str = setting("codes", "What the discriminator sees: codes or pictures.")
    consistency: str = setting("deviation_source", "Codes' loss: deviation_source, deviation_both or cycle.")
    lambda_deviation: float = setting(1.0, "Weight of the deviation of codes to be translated.")
    lambda_identity: float = setting(10.0, "Weight of the deviation of codes already in the target domain.")
    lambda_cycle: float = setting(10.0, "Weight of the codes' cycle.")
    pool_size: int = setting(50, "Earlier codes or pictures that a discriminator may see (0: none).")


SETTINGS: dict[str, type] = {"CycleGAN": CycleGANSettings, "DeviationGAN": DeviationGANSettings}


def defaults_of(kind: str) -> dict[str, Any]:
    """The arguments of a kind of model, with their defaults."""
    return {each.name: each.default for each in fields(SETTINGS[kind])}


def plain(name: str, value: Any, kind: type) -> Any:
    """The value of a setting as Python's own number or text, for checkpoints and messages: NumPy's are others.

    Raises:
        LabkitError: it is no number, or no whole one where `kind` is int.
    """
    if isinstance(value, {int: Integral, float: Real, str: str}[kind]):
        return str.__str__(value) if kind is str else kind(value)
    if kind is str:  # perhaps a network of one's own
        return value
    raise LabkitError(f"{name}={value!r:.60}: a {'whole ' * (kind is int)}number is needed.")


P = ParamSpec("P")
S = TypeVar("S")


def takes(settings: Callable[P, S]) -> Callable[[Callable[[Any, S], None]], Callable[Concatenate[Any, P], None]]:
    """Gives a constructor, which is written for a dataclass, the dataclass's fields as its arguments."""

    def decorate(build: Callable[[Any, S], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(build)
        def __init__(self: Any, *arguments: P.args, **named: P.kwargs) -> None:
            given = settings(*arguments, **named)
            for each in fields(given):  # type: ignore[arg-type]
                vars(given)[each.name] = plain(each.name, getattr(given, each.name), type(each.default))
            build(self, given)

        signature = inspect.signature(settings)
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = signature.replace(parameters=[itself, *signature.parameters.values()])  # type: ignore[attr-defined]
        lines = [f"    {each.name}: {each.metadata['text']}" for each in fields(settings)]  # type: ignore[arg-type]
        __init__.__doc__ = "\n".join(["Args:", *lines])
        return __init__

    return decorate
