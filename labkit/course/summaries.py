"""Tables that the lessons show: what a study's runs took, the work of each player, ratios, a survey's times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from labkit import best_within, time_to_quality

if TYPE_CHECKING:
    import pandas

    from labkit.simulate.operators import Operator


def learning_summary(curves: pandas.DataFrame, seconds: float) -> pandas.DataFrame:
    """The cost of each step, its cost to the goal, and its best look within `seconds`; medians over the seeds.

    A run that never reached the goal counts as infinite, so a median of infinity says that most runs failed.

    Args:
        curves: from `labkit.learning_curves` or `labkit.study`.
        seconds: of training, for the columns "fg in ... s", "bg in ... s" and "changed in ... s" (percent).

    Returns:
        A row a name, in the order of `curves`. The columns: GFLOP a step; ms a step; images, seconds and TFLOP to the
        goal; runs that reached it ("60%"); and the three of the best look.

    Raises:
        LabkitError: a run has no look that early.
    """
    import pandas

    last = curves.groupby("name", sort=False).last()
    taken = time_to_quality(curves)
    medians = taken.fillna(math.inf).groupby("name", sort=False).median()
    best = best_within(curves, seconds).groupby("name", sort=False).median()
    return pandas.DataFrame(
        {
            "GFLOP a step": last["flops"] / last["images"] / 1e9,
            "ms a step": 1e3 * last["seconds"] / last["images"],
            "images to the goal": medians["images"],
            "seconds to the goal": medians["seconds"],
            "TFLOP to the goal": medians["flops"] / 1e12,
            "runs that reached it": taken["images"].notna().groupby("name", sort=False).mean().map("{:.0%}".format),
            **{f"{metric} in {seconds:g} s": best[metric] for metric in ("fg", "bg", "changed")},
        }
    )


def work_by_player(operators: Iterable[Operator]) -> Counter[str]:
    """FLOPs of a step by player, for example "generators"; players without FLOPs are left out.

    Args:
        operators: of one step, from `labkit.simulate`.
    """
    work: Counter[str] = Counter()
    for operator in operators:
        if operator.flops:
            work[operator.range.partition(" ")[0]] += operator.flops
    return work


def ratio_table(values: pandas.Series, over: Sequence[str], under: Sequence[str]) -> pandas.DataFrame:
    """``values[row] / values[column]`` for each row of `over` and each column of `under`."""
    import pandas

    table = pandas.DataFrame({name: values[list(over)] / values[name] for name in under})
    return table.rename_axis("how many times")


def survey_milliseconds(results: Mapping, variants: Mapping[str, tuple[str, Mapping]]) -> pandas.DataFrame:
    """Milliseconds a step without speed-ups, on pictures of 256 x 256 pixels: a row a variant, a column a batch.

    Args:
        results: of one survey, from `labkit.gpu_results`.
        variants: (model, settings) by name, for example ("CycleGAN", {"generator": "resnet_9blocks"}).
    """
    import pandas

    rows: dict[str, dict[str, float]] = {}
    for row in results["rows"].values():
        if row["kind"] != "timing" or row["speedups"]:
            continue
        if (row["tf32"], row["scope"], row["size"]) != ("default", "step", 256):
            continue
        for name, variant in variants.items():
            if (row["model"], row["settings"]) == variant:
                median = row["comparison"]["rows"][0]["median_s"]  # of the baseline, which has no speed-ups
                rows.setdefault(name, {})[f"batch {row['batch_size']}, ms"] = 1e3 * median
    return pandas.DataFrame.from_dict(rows, orient="index")
