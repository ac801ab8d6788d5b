"""Settings that are known to work, one place for the command line and the notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labtrace.errors import check_known


@dataclass(frozen=True)
class Recipe:
    """Settings of a run: the model's kind and arguments, picture size, steps, learning rate, perhaps by player (None:
    the model's own), and the share of the steps, at the end, over which the learning rate falls to 0."""

    size: int
    steps: int
    lr: float | dict[str, float] | None = None
    decay: float = 0.0
    kind: str = "CycleGAN"
    model: dict[str, Any] = field(default_factory=dict)


# Narrow and shallow networks learn the fruit in two minutes on one core. Instance norm in the residual blocks
# only, since a network that has it everywhere forgets the absolute colours of the background.
FRUIT = Recipe(
    size=64,
    steps=1200,
    lr=5e-4,
    model=dict(
        generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=16, ndf=16, norm="instance_blocks"
    ),
)

# The public reference's settings: 200 epochs of a set of about a thousand pictures.
PHOTOGRAPHS = Recipe(size=256, steps=200_000, decay=0.5)

# Three players that each do less work: more steps, in less time.
FRUIT_ONE_GENERATOR = Recipe(size=64, steps=2000, kind="DeviationGAN", model=dict(ngf=16, ndf=16, blocks=3))

# The reference's schedule. Untested at this size: examples/photographs.py tries 64 pixels.
PHOTOGRAPHS_ONE_GENERATOR = Recipe(size=256, steps=200_000, decay=0.5, kind="DeviationGAN")

BY_KIND = {"CycleGAN": (FRUIT, PHOTOGRAPHS), "DeviationGAN": (FRUIT_ONE_GENERATOR, PHOTOGRAPHS_ONE_GENERATOR)}


def find(data: str, kind: str) -> Recipe:
    """The recipe for a kind of model, on "fruit" or on other data, which are photographs.

    Raises:
        LabkitError: there is no such kind.
    """
    check_known("model", kind, BY_KIND)
    return BY_KIND[kind][data != "fruit"]
