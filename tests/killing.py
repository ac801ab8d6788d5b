"""Trains through the command line, kills it without warning, and continues."""

import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import forked
import torch

from labkit.training import callbacks, checkpoints
from labkit.training.run import Run

ARGUMENTS = (
    "train --size 16 --generator resnet_3blocks --ngf 4 --batch-size 2 --steps {steps} --save-minutes 0 --workers 1 "
    "--device cpu --keep-every 7 --out"
)


def start(folder: Path, steps: int) -> BaseProcess:
    """A training process that saves after every step."""
    return forked.labkit(folder.with_suffix(".said"), *ARGUMENTS.format(steps=steps).split(), str(folder))


def train_unbroken(folder: Path, steps: int) -> dict:
    """The checkpoint of a run that nobody kills."""
    process = start(folder, steps)
    process.join()
    assert process.exitcode == 0, folder.with_suffix(".said").read_text()
    return checkpoints.load(folder)


def train_killed(folder: Path, steps: int, seed: int) -> tuple[dict, int]:
    """The checkpoint of a run that is killed at a random moment, and the step that this left it at."""
    chance, process = random.Random(seed), start(folder, steps)
    while not (folder / checkpoints.FILE).exists() and process.is_alive():
        time.sleep(0.01)
    target = checkpoints.load(folder)["done"] + chance.randrange(1, 4)  # in the steps and writes that follow this one
    while process.is_alive() and checkpoints.load(folder)["done"] < target:
        time.sleep(0.005)
    time.sleep(chance.random() * 0.2)
    assert process.is_alive(), "the run ended before it could be killed: take more steps"
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    left_at = checkpoints.load(folder)["done"]
    return train_unbroken(folder, steps), left_at


class KilledError(BaseException):
    """What no code of a run expects."""


def killed_at(step: int) -> Callable[[Run], None]:
    """A callback that ends a run so at a step, in this process."""

    def look(run: Run) -> None:
        if run.done == step:
            raise KilledError

    return look


def same(a, b) -> bool:
    """Whether two checkpoints, or parts of them, hold the same bits."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return a == b


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Whether two networks hold the same bits."""
    return same(one.state_dict(), other.state_dict())


def same_files(a: Path, b: Path) -> bool:
    """Whether two runs wrote the same rows of losses, and kept the same checkpoints."""
    kept_a, kept_b = ({file.name: file for file in (folder / checkpoints.KEPT).iterdir()} for folder in (a, b))
    return (
        (a / callbacks.LOSSES).read_text() == (b / callbacks.LOSSES).read_text()
        and kept_a.keys() == kept_b.keys()
        and all(same(checkpoints.load(kept_a[name]), checkpoints.load(kept_b[name])) for name in kept_a)
    )
