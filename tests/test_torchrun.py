"""Ranks under torchrun that die, hang or are stopped."""

import os
import signal
import sys
import time

import psutil
import pytest
import several_ranks
import torch
import torch.distributed as dist
import torchrun
import typer

from labkit import ranks
from labkit.cli import main
from labkit.training import checkpoints
from labkit.training.interrupts import Stopped

pytestmark = pytest.mark.slow


def ours(said):
    """labkit's own lines among the messages; the others are torchrun's."""
    return [line for line in said.splitlines() if line.startswith("labkit: ")]


def test_a_killed_rank_is_started_again_a_second_run_is_refused_and_ctrl_c_saves(tmp_path, monkeypatch, capsys):
    run = torchrun.start(tmp_path, 10_000, "--max-restarts=1", start_new_session=True)
    torchrun.wait_for_step(tmp_path, 2, run)
    os.kill(torchrun.workers(run)[1].pid, signal.SIGKILL)
    time.sleep(1)  # the other rank may be writing the last of its checkpoints
    left_at = checkpoints.load(tmp_path)["done"]
    torchrun.wait_for_step(tmp_path, left_at + 2, run)
    monkeypatch.setattr(sys, "argv", ["labkit", *torchrun.command(tmp_path, 10)])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 1
    (message,) = ours(capsys.readouterr().err)
    assert f"{tmp_path}: another run trains into this folder." in message
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to every process
    said = torchrun.ended(run, tmp_path, 120)
    assert run.returncode != 0
    done = checkpoints.load(tmp_path)["done"]
    assert f"stopped after step {done} of 10000; saved in {tmp_path}" in said, said
    assert len(checkpoints.load(tmp_path)["losses"]["G_A"]) == done, "no step is missing, and none is there twice"


def test_a_rank_that_hangs_ends_the_others_with_one_message(tmp_path):
    run = torchrun.start(tmp_path, 10_000)
    torchrun.wait_for_step(tmp_path, 1, run)
    everyone = psutil.Process(run.pid).children(recursive=True)
    os.kill(torchrun.workers(run)[1].pid, signal.SIGSTOP)
    (message,) = ours(torchrun.ended(run, tmp_path, 120))
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
