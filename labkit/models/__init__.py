"""The models there are, by the name under which checkpoints and results know them."""

from __future__ import annotations

from labkit.models.cyclegan import Cycle, CycleGAN, CycleGANStep, Journey
from labkit.models.deviation import DeviationGAN
from labkit.models.losses import adversarial_loss, cycle_loss, deviation_loss, gradient_penalty, identity_loss
from labkit.models.model import Model, run_network
from labkit.models.pool import Pool

MODELS: dict[str, type[Model]] = {model.kind: model for model in (CycleGAN, DeviationGAN)}

__all__ = [
    "MODELS",
    "Cycle",
    "CycleGAN",
    "CycleGANStep",
    "DeviationGAN",
    "Journey",
    "Pool",
    "adversarial_loss",
    "cycle_loss",
    "deviation_loss",
    "gradient_penalty",
    "identity_loss",
    "run_network",
]
