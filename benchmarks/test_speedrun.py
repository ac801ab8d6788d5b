"""Calibrated seconds of an entry: alone, beside busy programs, and on a processor with other instructions.

The third is the same processor, of which PyTorch and oneDNN use AVX2 only. The bar is 10 % from the first.
"""

import contextlib
import os
import statistics
import subprocess
import sys

import pytest

from labkit.speedrun import Judge, calibration, processes, source

ROUNDS = 3
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
BUSY = "import torch; a = torch.rand(700, 700)\nwhile True: a @ a"


@contextlib.contextmanager
def busy():
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    others = [subprocess.Popen([sys.executable, "-c", BUSY], env=variables) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("name", ["wider", "lighter"])
def test_calibrated_seconds_agree(name, report, monkeypatch):
    judge, text = Judge(), source(name)
    plain = processes.environment
    calibrated, cpu = ({"alone": [], "busy": [], "avx2": []} for _ in range(2))
    for seed in range(ROUNDS):
        for condition in calibrated:
            more = AVX2 if condition == "avx2" else {}
            for module in (processes, calibration):
                monkeypatch.setattr(module, "environment", lambda more=more, **own: plain(**own, **more))
            with busy() if condition == "busy" else contextlib.nullcontext(), calibration.calibrator() as clock:
                heat = judge.heat(text, seed, clock)
            calibrated[condition].append(heat.seconds)
            cpu[condition].append(heat.cpu_seconds)
    medians = {condition: statistics.median(times) for condition, times in calibrated.items()}
    report(
        calibrated=medians,
        cpu={condition: statistics.median(times) for condition, times in cpu.items()},
        off={condition: median / medians["alone"] - 1 for condition, median in medians.items()},
    )
