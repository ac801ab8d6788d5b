"""One generator with a deviation loss in place of two with a cycle. Its steps are shorter, so it takes some more."""

from labcourse.speedrun import Entry
from labkit import DeviationGAN, linear_schedule, make_step
from labkit.recipes import FRUIT_ONE_GENERATOR

STEPS, SPEEDUPS = 900, ("batched", "fused_adam")


def entry(device: str) -> Entry:
    model = DeviationGAN(**FRUIT_ONE_GENERATOR.model).to(device)
    return Entry(model, make_step(model, *SPEEDUPS), STEPS, schedule=linear_schedule(STEPS // 2, STEPS // 2))
