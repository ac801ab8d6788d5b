"""The process in which an entry trains: ``python -m labcourse.speedrun.runner``, with its task as JSON on its input.

A child does the task. This process waits for it and for all other processes that the entry starts, so that the kernel
adds up their time for the judge. There are two tasks:

train     writes the translator's weights into the present folder: before the first step, at a few moments between, and
          after the last
export    writes the translator as a program, ``program.pt2``, a list of operators. The judge runs it with the weights
          from the training, so that no code of the entry runs outside the measured time
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time

LOOKS = 8  # parts of a run, after each of which the weights are kept
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
# Modules with pairs of pictures, with trained weights, or of the judge: an entry cannot import them.
CLOSED = (
    "labkit.data.fruit",
    "labkit.measure",
    "labkit.training.checkpoints",
    "labcourse.shipped",
    "labcourse.speedrun.race_judge",
)


def train(file: str, seed: int, device: str, channels: str) -> None:
    """Trains as the entry says, on pictures whose channels are in this order, such as "gbr"."""
    import torch

    from labcourse.speedrun.entry import SIZE, load
    from labkit.data.batches import UnpairedData, batches
    from labkit.data.fruit import training_pictures

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sys.modules.update(dict.fromkeys(CLOSED))  # type: ignore[arg-type]  # None: from now on their import fails
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
            entry.step.scale_lr(entry.schedule(done - 1))  # type: ignore[attr-defined]  # of a labkit.Step
        entry.step(a[:, order], b[:, order])
        if done in looks:
            if done == entry.steps and hasattr(entry.step, "finish"):
                entry.step.finish()
            keep(done)


def export(file: str) -> None:
    """Writes the entry's translator, untrained, as a program."""
    from labcourse.speedrun.entry import load
    from labkit.training.export import export

    sys.modules.update(dict.fromkeys(CLOSED))  # type: ignore[arg-type]
    export(load(file, "cpu").model.translator("AtoB"), "program.pt2")


def prctl(option: int, value: int) -> None:
    """Linux's prctl, which other systems do not have."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def wait_for_all(child: int) -> int:
    """Waits for all processes that this one or its descendants started, and gives the exit status of `child`."""
    status = 1
    while True:
        try:
            ended, raw = os.wait()
        except ChildProcessError:  # there are no more
            return abs(status)
        if ended == child:
            status = os.waitstatus_to_exitcode(raw)


if __name__ == "__main__":
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the judge
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent has ended becomes a child of this one
    do, limit, task = json.load(sys.stdin)
    if child := os.fork():
        sys.exit(wait_for_all(child))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    if do == "train":
        train(**task)
    else:
        export(**task)
    sys.stdout.flush()
    os._exit(0)  # without the seconds that Python takes to tidy up
