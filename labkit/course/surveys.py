"""What a survey of a GPU measured, as the tables that the lessons show."""

from __future__ import annotations

from collections.abc import Mapping

import pandas

from labkit.errors import LabkitError
from labkit.measure.results import from_json

NUMBERS = ["median_s", "times_faster", "times_faster_low", "times_faster_high", "peak_bytes"]


def comparison_of(
    results: Mapping, generator: str = "resnet_9blocks", batch_size: int = 1, scope: str = "step", size: int = 256
) -> pandas.DataFrame:
    """The timings of one CycleGAN, batch and scope: one row a stack of speed-ups, "a+b", as `labkit.compare` has them.

    Each stack was timed against a baseline in its own comparison; the baseline's two rows are from the comparison of
    the baseline alone. A stack that a correctness row of the survey found wrong is "not equivalent". share_of_peak is
    of the device's fastest matrix product in float32, with TF32 where it has that.

    Args:
        results: from `labkit.gpu_results`.
        generator, batch_size, size: which CycleGAN, and which batch.
        scope: "step", or "forward" for its two cycles alone.

    Raises:
        LabkitError: the survey has no such timings.
    """
    timings = f"timing/{scope}/{generator}/{size}/b{batch_size}/tf32=default/"
    if f"{timings}baseline" not in results["rows"]:
        raise LabkitError(
            f"no baseline of {generator}, batch {batch_size}, {scope} of {size} pixels in this survey: "
            "run `python -m tools.survey` again to continue it, or choose another."
        )
    baseline = from_json(results["rows"][f"{timings}baseline"]["comparison"])
    stacks = [key.removeprefix(timings) for key in results["rows"] if key.startswith(timings)]
    others = [stack for stack in stacks if stack != "baseline"]
    table = pandas.concat(
        [baseline, *(from_json(results["rows"][timings + stack]["comparison"]).loc[[stack]] for stack in others)]
    )
    correctness = [row for row in results["rows"].values() if row["kind"] == "correctness" and not row["ok"]]
    wrong = table.index.isin(["+".join(row["speedups"]) for row in correctness])
    table.loc[wrong, ["verdict", "why"]] = "not equivalent", "the survey found it wrong: see its correctness row"
    if "device" in results["rows"]:
        rates = results["rows"]["device"]["matmul_flop_per_s"]
        table["share_of_peak"] = table["flop_per_s"] / max(rates["float32"], rates.get("tf32", 0.0))
    table.attrs = {"stamp": baseline.attrs["stamp"], "seconds": {}}
    return table


def races_of(results: Mapping) -> pandas.DataFrame:
    """The races of other models against CycleGAN with ResNet-9, both with the same speed-ups: one row a race.

    Each race was one comparison, in turn in one process. The table is empty if the survey has no races.

    | column | meaning |
    |---|---|
    | model | its name or its generator's, with settings |
    | batch_size, speedups | of both; "baseline" or "a+b" |
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
