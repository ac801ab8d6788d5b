"""The peak rates of GPUs, from their makers' data sheets: one table, for achieved rates and for labkit's cost model.

``peaks.csv`` beside this file has a row for each GPU, with its source: TFLOP/s by the type of the numbers, and the
memory's GB/s. They are dense rates, without sparsity, on tensor or matrix cores where these compute in the type, and
for 16 bits with sums in float32, as PyTorch asks for. "tfloat32" is float32 on tensor cores: TF32.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas

# After a GPU's name these make another one of it, whose rates differ
ANOTHER = r"(?i)\b(?:Ti|Super|D|Laptop|Max-Q|MIG|NVL|HBM2e|Ada)\b"


_TABLE = pandas.read_csv(Path(__file__).with_name("peaks.csv"), index_col="gpu").drop(columns="source")
_MEMORY = _TABLE.pop("gb_per_s")
# By the GPU its FLOP/s by type, without those that it cannot compute in, and the memory's bytes/s
PEAKS = {gpu: ((1e12 * rates.dropna()).to_dict(), 1e9 * float(_MEMORY[gpu])) for gpu, rates in _TABLE.iterrows()}


def peaks_of(device: str) -> tuple[dict[str, float], float] | None:
    """The rates of the GPU with this name, such as "NVIDIA H100 80GB HBM3", or None if it is not in the table."""
    known = [gpu for gpu in PEAKS if re.search(rf"\b{gpu}\b", device)]
    gpu = max(known, key=len, default="")
    return None if not gpu or re.search(ANOTHER, device.partition(gpu)[2]) else PEAKS[gpu]
