"""The models there are, by the name that checkpoints and results know them by."""

from __future__ import annotations

from labkit.models.cyclegan import CycleGAN
from labkit.models.deviation import DeviationGAN

MODELS = {model.kind: model for model in (CycleGAN, DeviationGAN)}
