"""Speed-ups on processors: by maker, by instruction set and by number of threads, in float32.

A row for each comparison is added to out/bench/processor.csv, which is data/results/processor.csv of another day. With
REFERENCE (see test_reference.py) the public reference's own step is among them.
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

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
PROCESSORS = {  # what a newer one is held to, so that it computes as an older one does
    "AVX2": AVX2,
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "AVX-512, products as on AMD": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
STACKS = ("compile", "out_of_place,batched,fused_adam", "winograd,subpixel,batched,fused_adam")
CASES = (
    ("resnet_9blocks", 64, 256, 1, 3),
    ("resnet_9blocks", 32, 256, 1, 3),
    ("resnet_6blocks", 32, 128, 1, 6),
    ("resnet_6blocks", 32, 64, 1, 10),
)
COLUMNS = "processor held_to threads generator filters pixels batch step times_faster commit".split()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("held_to", PROCESSORS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_speed_ups_on_a_processor(report, case, held_to, threads):
    own = stamp()
    if "AMD" in held_to and "AMD" in own["device"]:
        pytest.skip("an AMD is not held to what it does")
    program = Path(__file__).with_name("steps_in_turn.py")
    others = STACKS[1:] if "AMD" in held_to else STACKS  # MKL's products are not in what is compiled
    if "REFERENCE" in os.environ:
        others = ("reference", *others)
    command = [sys.executable, str(program), *map(str, case), *others]
    limits = {**os.environ, **PROCESSORS[held_to], "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=limits, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    report(**result)
    table = ROOT / "out" / "bench" / "processor.csv"
    begun = table.exists()
    with table.open("a", newline="") as file:
        rows = csv.writer(file)
        if not begun:
            rows.writerow(COLUMNS)
        for name, times in result["times_faster"].items():
            rows.writerow([own["device"], held_to, threads, *case[:4], name, times, own["commit"]])
