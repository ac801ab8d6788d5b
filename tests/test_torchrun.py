"""Ranks under torchrun that die or are stopped: nothing is lost. `make bench` kills ten, and lets one hang."""

import os
import signal
import subprocess
import sys

import pytest
import torchrun
from killing import same

from labkit.training import checkpoints


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    run = torchrun.start(folder, 30)
    said = torchrun.ended(run, folder)
    assert run.returncode == 0, said
    return folder


def ours(said):
    """labkit's own lines among the messages; the others are torchrun's."""
    return [line for line in said.splitlines() if line.startswith("labkit: ")]


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint_and_no_bit(whole, tmp_path):
    killed, _, left = torchrun.train_killed(tmp_path, kills=1, steps=30, seed=0)
    assert same(killed, checkpoints.load(whole))
    assert not left


def test_ctrl_c_saves_and_ends_all_and_a_second_run_meanwhile_is_refused(tmp_path):
    run = torchrun.start(tmp_path, 10_000, start_new_session=True)
    torchrun.wait_for_step(tmp_path, 2, run)
    second = [sys.executable, "-m", "labkit", *torchrun.command(tmp_path, 10)]
    refused = subprocess.run(second, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    (message,) = ours(refused.stderr)
    assert f"{tmp_path}: another run trains into this folder (process {torchrun.workers(run)[0].pid} on" in message
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to every process
    said = torchrun.ended(run, tmp_path, 120)
    assert run.returncode != 0
    done = checkpoints.load(tmp_path)["done"]
    assert f"stopped after step {done} of 10000; saved in {tmp_path}" in said, said
