"""Calibrated seconds of an entry: alone, beside busy programs, and on a processor with other instructions.

The third is the same processor, of which PyTorch and oneDNN use AVX2 only. The bar is 10 % from the first.
"""

import contextlib
import os
import statistics
import subprocess
import sys

import pytest

ROUNDS = 3
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
BUSY = "import torch; a = torch.rand(700, 700)\nwhile True: a @ a"
JUDGED = """
import sys
from labcourse.speedrun import RaceJudge, source
heat = RaceJudge().heat(source(sys.argv[1]), int(sys.argv[2]))
print(heat.seconds, heat.cpu_seconds)
"""


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
def test_calibrated_seconds_agree(name, report):
    times = {"alone": [], "busy": [], "avx2": []}
    for seed in range(ROUNDS):
        for condition in times:
            variables = os.environ | (AVX2 if condition == "avx2" else {})
            with busy() if condition == "busy" else contextlib.nullcontext():
                command = [sys.executable, "-c", JUDGED, name, str(seed)]
                said = subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True, text=True).stdout
            times[condition].append(tuple(map(float, said.split())))
    calibrated, cpu = (
        {condition: statistics.median(each[of] for each in every) for condition, every in times.items()}
        for of in (0, 1)
    )
    off = {condition: median / calibrated["alone"] - 1 for condition, median in calibrated.items()}
    report(calibrated=calibrated, cpu=cpu, off=off)
