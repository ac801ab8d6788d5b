"""Sweeps: no kill loses a trial or repeats one, and two workers are worth two processes."""

import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import sweeping
import torch
from killing import same

import labkit
from labkit.recipes import FRUIT
from labkit.training import checkpoints

STEPS = 20


def test_ten_kills_of_a_random_worker_and_a_journal_that_is_cut_off(tmp_path, report):
    storage, seed = tmp_path / "a.journal", int(time.time())
    left = sweeping.kill_some(storage, kills=10, trials=24, steps=STEPS, seed=seed)
    content = storage.read_bytes()
    storage.write_bytes(content[: -random.Random(seed).randrange(2, 60)])  # the end of the last trial's last record
    again = sweeping.start(storage, 24, STEPS)
    again.join()
    assert again.exitcode == 0
    said = storage.with_suffix(".said").read_text()
    told, last = sweeping.endings(storage, STEPS)
    table = labkit.sweeps.table(storage)
    unlike = [
        number
        for number in sorted({int(folder.name[-4:]) for folder in left if folder})
        if not kept(table, number, tmp_path)
    ]
    report(
        kills=len(left),
        left_behind=sum(folder is not None for folder in left),
        trials=len(table),
        complete=int((table["state"] == "complete").sum()),
        finished_more_than_once=[number for number, times in told.items() if times > 1],
        trained_to_the_end_more_than_once=[number for number, times in last.items() if times > 1],
        unlike_an_unbroken_run=unlike,
        cut_off="half a record" in said,
    )
    assert told == last == dict.fromkeys(range(24), 1) and list(table["state"]) == ["complete"] * 24
    assert "half a record" in said and not unlike


def kept(table, number: int, folder) -> bool:
    """Whether a trial that was killed ended in the same bits as one that nobody kills."""
    torch.manual_seed(0)
    lr, ngf = float(table.loc[number, "lr"]), int(table.loc[number, "ngf"])
    step = labkit.make_step(labkit.CycleGAN(**{**FRUIT.model, "ngf": ngf, "ndf": 4}), lr=lr)
    labkit.fit(step, labkit.fruit(size=16), STEPS, checkpoint=folder / f"right_{number}")
    return same(checkpoints.load(folder / f"right_{number}"), checkpoints.load(table.loc[number, "folder"]))


def test_two_workers_against_one(tmp_path, report):
    """24 small trials on one worker and on two; and two side by side with two sweeps that share nothing.

    The side by side comparison holds on a busy machine, too: whatever else runs slows all four down alike.
    """
    one = ended([worker(tmp_path / "alone.journal", 24)])
    two = ended([worker(tmp_path / "two.journal", 24) for _ in range(2)])
    shared = [worker(tmp_path / "shared.journal", 24) for _ in range(2)]
    apart = [worker(tmp_path / f"{name}.journal", 12) for name in ("left", "right")]
    seconds = ended(shared + apart)
    share = max(seconds[2:]) / max(seconds[:2])
    times_faster = max(one) / max(two)
    report(
        times_faster=round(times_faster, 2),
        of_independent_processes=round(share, 2),
        one=round(max(one)),
        two=round(max(two)),
        shared=[round(number) for number in seconds[:2]],
        apart=[round(number) for number in seconds[2:]],
    )
    assert times_faster >= 1.8 or share >= 0.9


def worker(storage: Path, trials: int) -> BaseProcess:
    """A worker that saves at the end of each trial."""
    return sweeping.start(storage, trials, STEPS, "--save-minutes", "5")


def ended(processes: list[BaseProcess]) -> list[float]:
    """The seconds from now until each has ended."""
    started, took = time.perf_counter(), dict.fromkeys(processes, 0.0)
    while not all(took.values()):
        time.sleep(0.1)
        for process in processes:
            if not took[process] and process.exitcode is not None:
                assert process.exitcode == 0
                took[process] = time.perf_counter() - started
    return list(took.values())
