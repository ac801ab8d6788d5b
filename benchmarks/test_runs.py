"""Whole runs: fruit is learned within its budget, and no kill changes anything."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import several_ranks
import torch
import torchrun
from killing import same, same_files, train_killed, train_unbroken
from test_data_parallel import assert_same

from labkit.devices import emulates
from labkit.training import checkpoints


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("speedups", ["", "bf16", "bf16,batched,fused_adam"])
def test_fruit_is_learned(tmp_path, report, speedups, seed):
    if "bf16" in speedups and emulates(torch.bfloat16):
        pytest.skip("this processor only emulates bfloat16, and labkit refuses it")
    command = [sys.executable, "-m", "labkit", "train", "--data", "fruit", "--device", "cpu", "--workers", "0"]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--seed", str(seed), "--speedups", speedups, "--out", str(tmp_path)],
        env={"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    cpu = int(re.search(r"(\d+) CPU seconds", done.stdout)[1])
    fg, bg = map(float, re.search(r"fg ([\d.]+) %, bg ([\d.]+) %", done.stdout).groups())
    report(fg=fg, bg=bg, cpu_seconds=cpu, seconds=round(time.perf_counter() - started))
    assert fg <= 9 and bg <= 4 and cpu <= 150


def test_twenty_kills(tmp_path, report):
    whole = train_unbroken(tmp_path / "whole", steps=200)
    resumed, left_at = train_killed(tmp_path / "killed", kills=20, steps=200, seed=int(time.time()))
    identical = same(resumed, whole) and same_files(tmp_path / "killed", tmp_path / "whole")
    report(kills=len(left_at), left_at_steps=left_at, identical=identical)
    assert identical


def test_four_ranks_are_one_process(tmp_path, report):
    mine, right = several_ranks.run(4, several_ranks.everything, tmp_path)[""], several_ranks.trained()
    report(losses=[losses["cycle_A"] for losses in mine["losses"]][-1])
    assert_same(mine, right)


def ranks_killed(folder: Path, kills: int, steps: int, seed: int) -> tuple[dict, str, list[psutil.Process]]:
    """A run in which a random rank is killed `kills` times: its checkpoint, its messages, and what is left running."""
    chance = random.Random(seed)
    run = torchrun.start(folder, steps, f"--max-restarts={kills}")
    seen: set[psutil.Process] = set()
    for kill in range(kills):
        torchrun.wait_for_step(folder, chance.randrange(1, steps // kills) + kill * steps // kills, run)
        ranks = [process for process in torchrun.workers(run) if process not in seen]
        while len(ranks) < 2:  # torchrun starts them again
            time.sleep(0.05)
            ranks = [process for process in torchrun.workers(run) if process not in seen]
        seen |= set(psutil.Process(run.pid).children(recursive=True))
        os.kill(chance.choice(ranks).pid, signal.SIGKILL)
    said = torchrun.ended(run, folder, 1200)
    assert run.returncode == 0, said
    return checkpoints.load(folder), said, [process for process in seen if process.is_running()]


def test_ten_kills_of_a_random_rank(tmp_path, report):
    whole = torchrun.start(tmp_path / "whole", 200)
    assert whole.wait() == 0
    killed, _, left = ranks_killed(tmp_path / "killed", kills=10, steps=200, seed=int(time.time()))
    identical = same(killed, checkpoints.load(tmp_path / "whole"))
    report(kills=10, identical=identical, left_running=len(left))
    assert identical and not left


def test_a_node_that_is_killed_and_started_again_joins_the_other_one(tmp_path, report, monkeypatch):
    """Two nodes of one rank each, both on this machine: a torchrun and its rank are killed, and started again."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # see docs/clusters.md
    whole = torchrun.start(tmp_path / "whole", 120)
    assert whole.wait() == 0
    where = ("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}")
    host, guest = ("--max-restarts=3", "--rdzv-conf=is_host=1"), ("--max-restarts=3", "--rdzv-conf=is_host=0")
    folder = tmp_path / "killed"
    first = torchrun.start(folder, 120, *host, where=where)
    second = torchrun.start(folder, 120, *guest, where=where)
    torchrun.wait_for_step(folder, 30, first)
    for process in [*psutil.Process(second.pid).children(recursive=True), psutil.Process(second.pid)]:
        process.kill()
    second.wait()
    at = checkpoints.load(folder)["done"]
    started = time.perf_counter()
    second = torchrun.start(folder, 120, *guest, where=where)
    said = torchrun.ended(first, folder)
    second.wait(60)
    ended = checkpoints.load(folder)
    identical = same(ended, checkpoints.load(tmp_path / "whole"))
    report(
        killed_at_step=at, seconds_after=round(time.perf_counter() - started), done=ended["done"], identical=identical
    )
    assert first.returncode == 0 and second.returncode == 0, said
    assert identical


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_rank_that_hangs_ends_the_others_with_one_message(tmp_path, report):
    run = torchrun.start(tmp_path, 10_000)
    torchrun.wait_for_step(tmp_path, 1, run)
    everyone = psutil.Process(run.pid).children(recursive=True)
    os.kill(torchrun.workers(run)[1].pid, signal.SIGSTOP)
    started = time.perf_counter()
    said = torchrun.ended(run, tmp_path, 120)
    seconds = time.perf_counter() - started
    _, left = psutil.wait_procs(everyone, timeout=15)
    messages = [line for line in said.splitlines() if line.startswith("labkit: ")]
    report(seconds=round(seconds), messages=messages, left_running=len(left))
    assert run.returncode != 0 and not left and len(messages) == 1
    assert "rank 0 of 2: another rank ended, or did not answer for 8 seconds" in messages[0]
