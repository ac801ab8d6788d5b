"""Speed-ups on a processor with AVX2 and no wider units, as students have, or with AVX-512: one thread, float32.

A row for each comparison is added to out/bench/processor.csv, which is data/results/processor.csv of another day.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from labkit.stamp import stamp

PROCESSORS = {  # what a newer one is held to, so that it computes as an older one does
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
}
STACKS = ("out_of_place,batched,fused_adam", "winograd,subpixel,batched,fused_adam")
CASES = (
    ("resnet_9blocks", 32, 256, 1, 3),
    ("resnet_6blocks", 32, 128, 1, 6),
    ("resnet_6blocks", 32, 64, 1, 10),
)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_speed_ups_on_a_processor(report, case, processor):
    program = Path(__file__).with_name("on_avx2.py")
    command = [sys.executable, str(program), *map(str, case), *STACKS]
    limits = {**os.environ, **PROCESSORS[processor], "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=limits, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    report(**result)
    table = ROOT / "out" / "bench" / "processor.csv"
    begun = table.exists()
    with table.open("a", newline="") as file:
        rows = csv.writer(file)
        if not begun:
            rows.writerow(["generator", "filters", "pixels", "batch", "held_to", "stack", "times_faster", "commit"])
        generator, filters, pixels, batch, _ = case
        for stack, times in result["times_faster"].items():
            rows.writerow([generator, filters, pixels, batch, processor, stack, times, stamp()["commit"]])
