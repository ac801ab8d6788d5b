"""Two thirds of the steps. The rate falls over their second half: a constant one leaves the end to chance."""

from labcourse.speedrun import Entry
from labkit import CycleGAN, linear_schedule, make_step
from labkit.recipes import FRUIT

STEPS = 2 * FRUIT.steps // 3


def entry(device: str) -> Entry:
    model = CycleGAN(**FRUIT.model).to(device)
    return Entry(model, make_step(model, lr=FRUIT.lr), STEPS, schedule=linear_schedule(STEPS // 2, STEPS // 2))
