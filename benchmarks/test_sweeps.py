"""Sweeps: no kill loses a trial or repeats one, and two workers are worth two processes."""

import random
import statistics
import subprocess
import time
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
    assert again.wait() == 0
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
    labkit.fit(step, labkit.fruit(size=16), STEPS, checkpoint=folder / f"right_{number}", progress=False)
    return same(checkpoints.load(folder / f"right_{number}"), checkpoints.load(table.loc[number, "folder"]))


def test_two_workers_against_one(tmp_path, report):
    """24 small trials on one worker, on two, and on two sweeps that know nothing of each other, in turn."""
    rounds = []
    for number in range(2):
        alone, shared, *apart = (tmp_path / f"{name}_{number}.journal" for name in ("alone", "shared", "left", "right"))
        one = seconds(worker(alone, 24))
        two = seconds(worker(shared, 24), worker(shared, 24))
        independent = seconds(*(worker(storage, 12) for storage in apart))
        rounds.append({"one": round(one), "two": round(two), "independent": round(independent)})
    times_faster = statistics.median(times["one"] / times["two"] for times in rounds)
    share = statistics.median(times["independent"] / times["two"] for times in rounds)
    report(times_faster=round(times_faster, 2), of_independent_processes=round(share, 2), seconds=rounds)
    assert times_faster >= 1.8 or share >= 0.9


def worker(storage: Path, trials: int) -> subprocess.Popen:
    """A worker that saves at the end of each trial."""
    return sweeping.start(storage, trials, STEPS, "--save-minutes", "5")


def seconds(*processes: subprocess.Popen) -> float:
    """From now until all have ended."""
    started = time.perf_counter()
    assert [process.wait() for process in processes] == [0] * len(processes)
    return time.perf_counter() - started
