"""Jobs that train a module each and share a folder: one that is killed goes on, and the others do not notice."""

import os
import random
import signal
import subprocess
import sys
import time

import torch

import labkit
from labkit.models.deviation import STAGES
from labkit.training import checkpoints

STEPS, KILLS = 400, 10
TRAIN = (
    "train --model DeviationGAN --size 24 --ngf 4 --ndf 4 --exchange-every 1 --save-minutes 0 --workers 0 --device cpu"
)


def start(folder, module):
    command = [*TRAIN.split(), "--steps", str(STEPS), "--module", module, "--through", str(folder / "weights")]
    return subprocess.Popen(
        [sys.executable, "-m", "labkit", *command, "--out", str(folder / module)],
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
