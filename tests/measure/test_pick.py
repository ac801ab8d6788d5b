"""Of a comparison the fastest step is picked that computes the same and fits into the memory."""

import math

import pandas

from labkit.measure.autotune import pick

ROWS = [
    ("baseline", "baseline", 1.0, 8e9),
    ("bf16", "faster", 2.0, 4e9),
    ("graph+bf16", "faster", 2.5, 7e9),
    ("streams", "not equivalent", 3.0, 4e9),
    ("batched", "no difference", 4.0, 4e9),
]
TABLE = pandas.DataFrame(ROWS, columns=["name", "verdict", "times_faster", "peak_bytes"]).set_index("name")


def test_the_fastest_that_is_right_and_fits_is_picked():
    assert pick(TABLE) == "graph+bf16"
    assert pick(TABLE, memory_bytes=6e9) == "bf16" and pick(TABLE, memory_bytes=1e9) == "baseline"
    assert pick(TABLE.assign(peak_bytes=math.nan), memory_bytes=1e9) == "graph+bf16", "a CPU does not count"
