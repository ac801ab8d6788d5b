"""A survey's results as the table that `labkit.compare` gives, so that the same figures show both."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.measure.compare import AGAIN, SPEED, speed_verdict
from labkit.measure.timing import interval, ratios, spread

if TYPE_CHECKING:
    import pandas

NAN = float("nan")


def comparison_of(
    results: Mapping, generator: str = "resnet_9blocks", batch_size: int = 1, scope: str = "step", size: int = 256
) -> pandas.DataFrame:
    """The timings of one model, batch and scope: a row a stack of speed-ups, "a+b"; columns as in `labkit.compare`.

    A stack that a correctness row of the same survey found wrong is "not equivalent". Losses and gradients are not
    compared here, so their columns are NaN.

    Args:
        results: from `labkit.measure.results.read`.
        generator, batch_size, scope, size: which timings; see `labkit.measure.plan.Item`.

    Raises:
        LabkitError: the survey has no such timings.
    """
    import pandas

    def fits(row: Mapping) -> bool:
        settings = row.get("settings", {})
        what = (settings, row.get("batch_size"), row.get("scope"), row.get("size"), row.get("tf32"))
        return row["kind"] == "timing" and what == ({"generator": generator}, batch_size, scope, size, "default")

    timings = {tuple(row["speedups"]): row for row in results["rows"].values() if fits(row)}
    if () not in timings:
        raise LabkitError(
            f"no baseline of {generator}, batch {batch_size}, {scope} of {size} pixels in this survey: "
            "run `labkit survey` again to go on with it, or choose another."
        )
    noise = interval(ratios(timings[()]["seconds"]["baseline"], timings[()]["seconds"]["variant"]))
    peak = max(rates(results, "float32", "tf32"), default=NAN)
    wrong = {
        tuple(row["speedups"]) for row in results["rows"].values() if row["kind"] == "correctness" and not row["ok"]
    }
    rows = {}
    for stack, row in timings.items():
        faster = ratios(row["seconds"]["baseline"], row["seconds"]["variant"])
        low, high = interval(faster)
        median = statistics.median(row["seconds"]["variant"])
        flops = row.get("flops", NAN) / median
        held = row["peak_bytes"]["variant"]
        values = (median, spread(row["seconds"]["variant"]), statistics.median(faster), low, high)
        values += (batch_size / median, NAN if held is None else held, flops, flops / peak)
        name = "+".join(stack) or "baseline"
        verdict, why = speed_verdict(statistics.median(faster), (low, high), noise)
        if stack in wrong:
            verdict, why = "not equivalent", "the survey found it wrong: see its correctness row"
        rows[name] = {"verdict": verdict, "why": why, **dict(zip(SPEED, values, strict=True))}
    rows = {"baseline": rows["baseline"], AGAIN.format("baseline"): rows.pop("baseline"), **rows}
    rows["baseline"] = rows["baseline"] | {"verdict": "baseline", "why": "what the others are compared with"}
    rows[AGAIN.format("baseline")] |= {"verdict": "noise", "why": "the baseline against itself"}
    table = pandas.DataFrame.from_dict(rows, orient="index").assign(loss_difference=NAN, gradient_cosine=NAN)
    table.attrs = {"stamp": results["stamp"] | {"batch_shape": [batch_size, 3, size, size]}, "seconds": {}}
    return table


def rates(results: Mapping, *types: str) -> list[float]:
    """The device's measured FLOP/s of matrix products in these types, as far as the survey has them."""
    devices = [row["matmul_flop_per_s"] for row in results["rows"].values() if row["kind"] == "device"]
    return [device[name] for device in devices for name in types if name in device]
