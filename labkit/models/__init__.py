"""The models, by the name under which checkpoints and results know them."""

from __future__ import annotations

from labkit.models.cyclegan import Cycle, CycleGAN, CycleGANStep
from labkit.models.deviation import DeviationGAN
from labkit.models.model import Model, run_network
from labkit.models.pool import Pool

MODELS: dict[str, type[Model]] = {model.kind: model for model in (CycleGAN, DeviationGAN)}

__all__ = ["MODELS", "Cycle", "CycleGAN", "CycleGANStep", "DeviationGAN", "Pool", "run_network"]
