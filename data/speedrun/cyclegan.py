"""The CycleGAN of notebook 01, trained as `labkit train` trains it."""

from labcourse.speedrun import Entry
from labkit import CycleGAN, make_step
from labkit.recipes import FRUIT


def entry(device: str) -> Entry:
    model = CycleGAN(**FRUIT.model).to(device)
    return Entry(model, make_step(model, lr=FRUIT.lr), FRUIT.steps)
