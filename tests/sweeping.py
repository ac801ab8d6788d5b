"""Workers of a sweep in processes of their own, some of which are killed: for a test and a benchmark."""

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import forked

from labkit.sweeps.heartbeat import FILE

SWEEP = "sweep --lr 1e-4:1e-3:log --ngf 4,5 --ndf 4 --size 16 --save-minutes 0 --pruner none --device cpu"
FINISHED = (1, 2, 3)  # complete, pruned, failed: optuna.trial.TrialState
TOLD, REPORTED = 6, 7  # kinds of records: optuna.storages.journal.JournalOperation


def start(storage: Path, trials: int, steps: int, *options: str) -> BaseProcess:
    """A worker, which appends what it says to a file beside the journal."""
    numbers = ["--trials", str(trials), "--steps", str(steps), "--stale-seconds", "2"]
    arguments = [*SWEEP.split(), *numbers, *options, "--storage", str(storage)]
    return forked.labkit(storage.with_suffix(".said"), *arguments)


def trains(storage: Path, worker: BaseProcess) -> Path | None:
    """The folder in which a worker trains, or trained when it was killed."""
    for sign in storage.with_suffix("").glob(f"*/{FILE}"):
        with suppress(FileNotFoundError):  # it ends at this moment
            if sign.read_text().startswith(f"process {worker.pid} on"):
                return sign.parent
    return None


def kill_some(storage: Path, kills: int, trials: int, steps: int, seed: int, pause: float = 3) -> list[Path | None]:
    """Two workers, of which a random one is killed `kills` times, and started again; the last one is not.

    Args:
        pause: seconds, at most, from the moment at which the worker trains to the kill.

    Returns:
        the folder of the trial, if there was one, that each kill left behind.
    """
    chance, left = random.Random(seed), []
    workers = [start(storage, trials, steps) for _ in range(2)]
    for _ in range(kills):
        chosen = workers.pop(chance.randrange(len(workers)))
        while trains(storage, chosen) is None:
            assert chosen.is_alive(), storage.with_suffix(".said").read_text()
            time.sleep(0.01)
        time.sleep(chance.uniform(0, pause))
        assert chosen.is_alive(), "a worker ended before it could be killed: take more trials"
        os.killpg(chosen.pid, signal.SIGKILL)
        chosen.join()
        left.append(trains(storage, chosen))
        if len(left) < kills:
            workers.append(start(storage, trials, steps))
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, storage.with_suffix(".said").read_text()
    return left


def records(storage: Path) -> list[dict]:
    """Everything that the workers wrote into the journal."""
    return [json.loads(line) for line in storage.read_text().splitlines()]


def endings(storage: Path, steps: int) -> tuple[Counter, Counter]:
    """How often each trial was finished, and how often one was measured at its last step."""
    written = records(storage)
    told = Counter(one["trial_id"] for one in written if one["op_code"] == TOLD and one["state"] in FINISHED)
    last = Counter(one["trial_id"] for one in written if one["op_code"] == REPORTED and one["step"] == steps)
    return told, last
