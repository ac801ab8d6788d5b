"""The process in which an entry trains: ``python -m labcourse.speedrun.runner``, with its task as JSON on its input.

There are two tasks:

train     writes the translator's weights into the present folder: before the first step, at a few moments between, and
          after the last
export    writes the translator as a program, ``program.pt2``, a list of operators. The judge runs it with the weights
          from the training, so that no code of the entry runs outside the measured time
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import sys
import time
from typing import Any

from labkit.errors import LabkitError
from labkit.processes import end_with_parent

LOOKS = 8  # parts of a run, after each of which the weights are kept
# Modules with pairs of pictures, with trained weights, or of the judge: an entry cannot import them.
CLOSED = (
    "labkit.data.fruit",
    "labkit.measure",
    "labkit.training.checkpoints",
    "labcourse.shipped",
    "labcourse.speedrun.race_judge",
)


def load(file: str, device: str) -> Any:
    """The `Entry` that the function of an entry's file returns. Raises `LabkitError` if there is none."""
    from labcourse.speedrun.entry import Entry

    sys.modules.update(dict.fromkeys(CLOSED))  # type: ignore[arg-type]  # None: their import fails from now on
    make = runpy.run_path(file, run_name="entry").get("entry")
    made = make(device) if callable(make) else None
    if not isinstance(made, Entry):
        raise LabkitError("Define a function entry(device) that returns a labcourse.speedrun.Entry: there is none.")
    return made


def train(file: str, seed: int, device: str, channels: str) -> None:
    """Trains as the entry says, on pictures whose channels are in this order, such as "gbr"."""
    import torch

    from labcourse.speedrun.entry import SIZE
    from labkit.data.batches import UnpairedData, batches
    from labkit.data.fruit import training_pictures

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    entry = load(file, device)

    def keep(done: int) -> None:
        weights = {name: value.detach().cpu() for name, value in entry.model.translator("AtoB").state_dict().items()}
        torch.save((time.process_time(), weights), f"{done}.pt")

    order = ["rgb".index(channel) for channel in channels]
    data = UnpairedData("fruit", SIZE, *training_pictures(entry.pictures, SIZE, seed), [], [])
    looks = {entry.steps * part // LOOKS for part in range(1, LOOKS + 1)}
    keep(0)
    for done, (a, b) in enumerate(batches(data, entry.batch_size, 0, entry.steps, seed=seed, device=device), start=1):
        if entry.schedule is not None:
            entry.step.scale_lr(entry.schedule(done - 1))  # of a labkit.Step
        entry.step(a[:, order], b[:, order])
        if done in looks:
            keep(done)


def export(file: str) -> None:
    """Writes the entry's translator, untrained, as a program."""
    from labkit.training.export import export

    export(load(file, "cpu").model.translator("AtoB"), "program.pt2")


if __name__ == "__main__":
    end_with_parent(signal.SIGKILL)
    do, limit, task = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    if do == "train":
        train(**task)
    else:
        export(**task)
    sys.stdout.flush()
    os._exit(0)  # without the seconds that Python takes to tidy up
