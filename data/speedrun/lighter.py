"""Fewer filters in the encoder and decoder, and a translator with a block less."""

from labcourse.speedrun import Entry
from labkit import DeviationGAN, linear_schedule, make_step
from labkit.recipes import FRUIT_ONE_GENERATOR

STEPS, SPEEDUPS = 900, ("batched", "fused_adam")
LIGHTER = {**FRUIT_ONE_GENERATOR.model, "ngf": 12, "blocks": 2}


def entry(device: str) -> Entry:
    model = DeviationGAN(**LIGHTER).to(device)
    return Entry(model, make_step(model, *SPEEDUPS), STEPS, schedule=linear_schedule(STEPS // 2, STEPS // 2))
