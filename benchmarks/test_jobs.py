"""Jobs that train a module each and share a folder: one that is killed goes on, and the others do not notice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import labkit
from labkit.models.deviation import STAGES
from labkit.training import checkpoints

STEPS, KILLS = 400, 10
PROGRAM = Path(__file__).parents[1] / "examples" / "parallel" / "exchange_weights.py"
OPTIONS = ["--every", "1", "--steps", str(STEPS), "--size", "24", "--width", "4", "--save-minutes", "0"]


def start(folder, module):
    return subprocess.Popen(
        [sys.executable, PROGRAM, module, folder / module, "--through", folder / "weights", *OPTIONS],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=open(folder / "said", "a"),  # noqa: SIM115  # the process has it
        start_new_session=True,
    )


def test_ten_kills_of_a_random_job(tmp_path, report):
    chance, left_at = random.Random(time.time()), []
    jobs = {module: start(tmp_path, module) for module in STAGES["joint"]}
    said = tmp_path / "said"
    while len(left_at) < KILLS:
        module = chance.choice([name for name, job in jobs.items() if job.poll() is None])
        before = done(tmp_path / module)
        while done(tmp_path / module) < before + chance.randrange(1, 10):
            assert jobs[module].poll() is None, said.read_text()
            time.sleep(0.005)
        os.killpg(jobs[module].pid, signal.SIGKILL)
        jobs[module].wait()
        left_at.append((module, done(tmp_path / module)))
        jobs[module] = start(tmp_path, module)
    codes = {module: job.wait() for module, job in jobs.items()}
    assert set(codes.values()) == {0}, said.read_text()
    ends = {module: checkpoints.load(tmp_path / module)["done"] for module in jobs}
    exchanged = {module: torch.load(tmp_path / "weights" / module / "weights.pt")["ended"] for module in jobs}
    report(left_at=left_at, ends=ends)
    assert set(ends.values()) == {STEPS} and all(exchanged.values())
    for module in jobs:
        labkit.load_model(tmp_path / module)


def done(folder) -> int:
    """The steps in a run's checkpoint, 0 before there is one."""
    return checkpoints.load(folder)["done"] if (folder / checkpoints.FILE).exists() else 0
