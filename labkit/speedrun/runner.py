"""The process in which an entry trains: ``python -m labkit.speedrun.runner FILE SEED DEVICE CHANNELS``.

It writes the translator's weights into the present folder, before the first step, at a few moments between, and after
the last. The judge times it from outside and does the rest.
"""

from __future__ import annotations

import os
import sys
import time

import torch

from labkit.data.batches import UnpairedData, batches
from labkit.data.fruit import training_pictures
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.speedrun import guard
from labkit.speedrun.entry import SIZE, Entry, load

LOOKS = 8  # parts of a run, after each of which the weights are kept


def train(entry: Entry, seed: int, device: str, channels: str) -> None:
    """Trains as the entry says, on pictures whose channels are in this order, such as "gbr"."""
    order = ["rgb".index(channel) for channel in channels]
    train_a, train_b = training_pictures(entry.pictures, SIZE, seed)
    data = UnpairedData("fruit", SIZE, train_a, train_b, [], [])
    kept = {entry.steps * part // LOOKS for part in range(1, LOOKS + 1)}
    keep(entry, 0)
    for done, (a, b) in enumerate(batches(data, entry.batch_size, 0, entry.steps, seed=seed, device=device)):
        if entry.schedule is not None:
            entry.step.scale_lr(entry.schedule(done))  # type: ignore[attr-defined]  # Entry has looked
        entry.step(a[:, order], b[:, order])
        if done + 1 in kept:
            if done + 1 == entry.steps and hasattr(entry.step, "finish"):
                entry.step.finish()
            keep(entry, done + 1)


def keep(entry: Entry, done: int) -> None:
    """Writes the translator's weights, and the CPU seconds of this process until now."""
    seconds = time.process_time()
    weights = {name: value.detach().cpu() for name, value in entry.model.translator("AtoB").state_dict().items()}
    with atomic_write(f"{done}.pt") as part:
        torch.save((seconds, weights), part)


if __name__ == "__main__":
    file, seed, device, channels = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    guard.start(file)
    try:
        train(load(file, device), seed, device, channels)
    except LabkitError as error:
        sys.exit(f"labkit: {error}")
    os._exit(0)  # without the seconds that Python takes to tidy up
