"""Benchmarks write what they measured, with its stamp, to out/bench."""

import json
from pathlib import Path

import pytest
import torch

from labkit.stamp import stamp

ROOT = Path(__file__).parents[1]
torch.set_num_threads(1)


@pytest.fixture
def report(request):
    """A function that prints a result and writes it, stamped."""

    def write(**result):
        folder = ROOT / "out" / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        name = request.node.name.removeprefix("test_")
        (folder / f"{name}.json").write_text(json.dumps({"result": result, "stamp": stamp()}, indent=1) + "\n")
        print(f"\n{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()))

    return write
