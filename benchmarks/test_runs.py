"""Whole runs: fruit is learned within its budget, and twenty kills change nothing."""

import re
import subprocess
import sys
import time

import pytest
from killing import same, train_killed, train_unbroken


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("speedups", ["", "bf16", "bf16,batched,fused_adam"])
def test_fruit_is_learned(tmp_path, report, speedups, seed):
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
    whole = train_unbroken(tmp_path / "whole", steps=100)
    resumed, left_at = train_killed(tmp_path / "killed", kills=20, steps=100, seed=int(time.time()))
    report(kills=len(left_at), left_at_steps=left_at, identical=same(resumed, whole))
    assert same(resumed, whole)
