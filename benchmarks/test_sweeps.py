"""Sweeps: two trials at once are worth two runs that know nothing of each other."""

import shlex
import subprocess
import sys
import time

from optuna.distributions import CategoricalDistribution

import labkit
from labkit.commands.sweeping import Train

TRIAL = "--data fruit --size 32 --steps 200 --workers 0 --device cpu --no-tensorboard"
TRIALS, ROUNDS = 4, 2  # trials of each sweep; rounds, in turn, of which the better counts


def test_two_trials_at_once_against_two_independent_runs(tmp_path, report):
    """The same trainings as jobs of a sweep, and as two rows of commands in a shell."""
    swept, apart = [], []
    for turn in range(ROUNDS):
        started = time.monotonic()
        space = {"lr": CategoricalDistribution([5e-4])}
        table = labkit.sweep(Train(TRIAL), space, TRIALS, tmp_path / f"sweep_{turn}", at_once=2)
        assert list(table["state"]) == ["complete"] * TRIALS
        swept.append(time.monotonic() - started)
        started = time.monotonic()
        command = (
            f"OMP_NUM_THREADS=1 {shlex.quote(sys.executable)} -m labkit train {TRIAL} --lr 5e-4 --scores 1 --quiet"
        )
        rows = [
            " && ".join(f"{command} --out {tmp_path}/run_{turn}_{row}_{k}" for k in range(TRIALS // 2)) for row in "ab"
        ]
        for process in [subprocess.Popen(row, shell=True) for row in rows]:
            assert process.wait() == 0
        apart.append(time.monotonic() - started)
    share = min(apart) / min(swept)
    report(share=round(share, 2), sweep_s=[round(s, 1) for s in swept], apart_s=[round(s, 1) for s in apart])
    assert share >= 0.9
