"""Ranks under torchrun that die, hang or are stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import several_ranks
import torch
import torch.distributed as dist
import typer
from tiny import album_of

from labkit import ranks
from labkit.cli import main
from labkit.training import checkpoints
from labkit.training.interrupts import Stopped

pytestmark = pytest.mark.slow
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


def ended(run: subprocess.Popen, folder: Path) -> str:
    """Its messages, once it has ended."""
    run.wait(120)
    return (folder / "messages").read_text()


def workers(run: subprocess.Popen) -> list[psutil.Process]:
    """The processes of the ranks."""
    return psutil.Process(run.pid).children()


def wait_for_step(folder: Path, step: int, run: subprocess.Popen) -> None:
    """Returns when the checkpoint has come so far."""
    while not (folder / checkpoints.FILE).exists() or checkpoints.load(folder)["done"] < step:
        assert run.poll() is None, (folder / "messages").read_text()
        time.sleep(0.1)  # to read a checkpoint takes the ranks' time


def ours(said):
    """labkit's own lines among the messages; the others are torchrun's."""
    return [line for line in said.splitlines() if line.startswith("labkit: ")]


def test_a_killed_rank_is_started_again_a_second_run_is_refused_and_ctrl_c_saves(tmp_path, monkeypatch, capsys):
    run = start(tmp_path, 10_000, "--max-restarts=1", start_new_session=True)
    wait_for_step(tmp_path, 2, run)
    os.kill(workers(run)[1].pid, signal.SIGKILL)
    time.sleep(1)  # the other rank may be writing the last of its checkpoints
    left_at = checkpoints.load(tmp_path)["done"]
    wait_for_step(tmp_path, left_at + 2, run)
    monkeypatch.setattr(sys, "argv", ["labkit", *command(tmp_path, 10)])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 1
    (message,) = ours(capsys.readouterr().err)
    assert f"{tmp_path}: another run trains into this folder." in message
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to every process
    said = ended(run, tmp_path)
    assert run.returncode != 0
    done = checkpoints.load(tmp_path)["done"]
    assert f"stopped after step {done} of 10000; saved in {tmp_path}" in said, said
    assert len(checkpoints.load(tmp_path)["losses"]["G_A"]) == done, "no step is missing, and none is there twice"


def test_a_rank_that_hangs_ends_the_others_with_one_message(tmp_path):
    run = start(tmp_path, 10_000)
    wait_for_step(tmp_path, 1, run)
    everyone = psutil.Process(run.pid).children(recursive=True)
    os.kill(workers(run)[1].pid, signal.SIGSTOP)
    (message,) = ours(ended(run, tmp_path))
    assert "rank 0 of 2: another rank ended, or did not answer for 8 seconds" in message
    assert run.returncode != 0 and not psutil.wait_procs(everyone, timeout=15)[1]


FAILURES = [  # the error, whether it comes after a collective, and the exit status
    (lambda: ValueError("the reason"), False, 1),
    (lambda: KeyboardInterrupt("the reason"), True, 130),
    (lambda: Stopped("the reason", signal.SIGTERM), False, 143),
    (lambda: SystemExit("the reason"), True, 1),
    (lambda: typer.Exit(4), False, 4),
]


@pytest.mark.parametrize("number", range(len(FAILURES)))
def test_a_rank_that_fails_says_why_where_nothing_of_nccl_would_ever_return(tmp_path, number):
    status = FAILURES[number][2]
    waits, fails = several_ranks.launch(2, tmp_path, _fail, number, statuses=(1, status))
    assert fails.count("the reason") == (status != 4) and "another rank ended" in waits


def _fail(number):
    dist.destroy_process_group = lambda: time.sleep(600)
    error, late, _ = FAILURES[number]
    with ranks.process_group():
        if late:
            dist.barrier()
        if ranks.number() == 1:
            time.sleep(1)  # until the other one has joined the group
            raise error()
        dist.all_reduce(torch.zeros(1))
