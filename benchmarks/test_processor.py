"""Speed-ups on a processor with AVX2 and no wider units, one thread, float32: what students have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OMP_NUM_THREADS": "1",
}
STACKS = (
    "out_of_place,fused_adam",
    "out_of_place,batched,fused_adam",
    "winograd,subpixel,batched,fused_adam",
    "compile,batched,fused_adam",
    "auto",
)
CASES = (
    ("resnet_9blocks", 16, 64, 1, 12),
    ("resnet_6blocks", 16, 64, 4, 6),
    ("resnet_6blocks", 16, 128, 1, 6),
    ("resnet_9blocks", 32, 64, 1, 6),
    ("resnet_6blocks", 32, 64, 4, 4),
    ("resnet_9blocks", 32, 128, 1, 3),
    ("resnet_6blocks", 16, 256, 1, 3),
    ("resnet_6blocks", 16, 128, 4, 3),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_speed_ups_with_avx2(report, case):
    program = Path(__file__).with_name("on_avx2.py")
    command = [sys.executable, str(program), *map(str, case), *STACKS]
    done = subprocess.run(command, env={**os.environ, **AVX2}, capture_output=True, text=True, check=True)
    report(**json.loads(done.stdout))
