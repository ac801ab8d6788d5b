"""Trains in two ranks under torchrun, and kills or stops one of them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from tiny import album_of

from labkit.training import checkpoints

TRAIN = "train --size 24 --generator resnet_3blocks --ngf 4 --ndf 4 --batch-size 4 --decay-steps 0 --save-minutes 0"


def command(folder: Path, steps: int) -> list[str]:
    """labkit's arguments for a run that saves after every step, on a few pictures, which are made if need be."""
    data = album_of(folder / "data", 3, 28, 28)
    where = ["--workers", "1", "--device", "cpu", "--data", str(data), "--out", str(folder)]
    return [*TRAIN.split(), "--steps", str(steps), *where]


def start(folder: Path, steps: int, *options: str, **more) -> subprocess.Popen:
    """Such a run in two ranks, under torchrun, which writes its messages to a file: a full pipe would stop it."""
    arguments = command(folder, steps)  # makes the folder, too
    script = str(Path(__file__).parent / "training" / "impatient.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options, script]
    with open(folder / "messages", "a") as messages:
        outputs = dict(stdout=subprocess.DEVNULL, stderr=messages)
        return subprocess.Popen([*torchrun, *arguments], env=os.environ | {"OMP_NUM_THREADS": "1"}, **outputs, **more)


def ended(run: subprocess.Popen, folder: Path, timeout: float = 600) -> str:
    """Its messages, once it has ended."""
    run.wait(timeout)
    return (folder / "messages").read_text()


def workers(run: subprocess.Popen) -> list[psutil.Process]:
    """The processes of the ranks."""
    return psutil.Process(run.pid).children()


def wait_for_step(folder: Path, step: int, run: subprocess.Popen) -> None:
    """Returns when the checkpoint has come so far."""
    while not (folder / checkpoints.FILE).exists() or checkpoints.load(folder)["done"] < step:
        assert run.poll() is None, (folder / "messages").read_text()
        time.sleep(0.1)  # to read a checkpoint takes the ranks' time
