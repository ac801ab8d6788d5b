"""What a survey of a GPU measured, as the tables that the lessons show."""

from __future__ import annotations

from collections.abc import Mapping

import pandas

from labkit.measure.results import from_json

NUMBERS = ["median_s", "times_faster", "times_faster_low", "times_faster_high", "peak_bytes"]


def races_of(results: Mapping) -> pandas.DataFrame:
    """The races of other models against CycleGAN with ResNet-9, both with the same speed-ups: one row a race.

    Each race was one comparison, in turn in one process. The table is empty if the survey has no races.

    | column | meaning |
    |---|---|
    | model | its name or its generator's, with settings |
    | batch_size | of both |
    | speedups | of both: "baseline" or "a+b" |
    | median_s, peak_bytes | as in `labkit.compare` |
    | times_faster, times_faster_low, times_faster_high | than CycleGAN, with a 95% interval |

    Args:
        results: from `labkit.gpu_results`.
    """
    rows = []
    for row in results["rows"].values():
        if row["kind"] == "race":
            last = from_json(row["comparison"]).iloc[-1]
            stack = "+".join(row["speedups"]) or "baseline"
            rows.append({"model": last.name, "batch_size": row["batch_size"], "speedups": stack, **last[NUMBERS]})
    return pandas.DataFrame(rows, columns=["model", "batch_size", "speedups", *NUMBERS])
