"""The figures that a GPU is surveyed for, from the results and traces of it that are shipped in data/.

    python tools/gpu_figures.py h200

A table for each question: how much faster the best stack of speed-ups is, and how near to the roofline; whether two
streams pay; one generator against CycleGAN; energy; and idle time by its causes, before and after each speed-up.
`tools/replay_errors.py` answers how well replays foretell these traces.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas

import labkit
from labkit.course.shipped import DATA, shipped_as
from labkit.course.surveys import comparison_of, races_of
from labkit.errors import LabkitError
from labkit.measure import pick
from labkit.measure.results import read
from labkit.simulate import step_operators, surveyed_roofline
from labkit.simulate.operators import GPU_ONLY

SPEED = ["times_faster", "times_faster_low", "times_faster_high"]


def comparisons(results: dict, scope: str) -> Iterator[tuple[str, int, pandas.DataFrame]]:
    """Generator, batch size and the timings of it, of those that were surveyed."""
    for generator in ("resnet_9blocks", "unet_256"):
        for batch_size in (1, 4, 16):
            try:
                yield generator, batch_size, comparison_of(results, generator, batch_size, scope)
            except LabkitError:
                continue  # not in this survey


def best_stacks(results: dict) -> pandas.DataFrame:
    """The fastest stack of each network and batch, and the share of its time that its work takes on the roofline."""
    rows = []
    for generator, batch_size, table in comparisons(results, "step"):
        best = pick(table)
        seconds = table.loc[best, "median_s"]
        share = roofline_seconds(results, generator, batch_size, best.split("+")) / seconds
        rows.append([generator, batch_size, best, 1e3 * seconds, *table.loc[best, SPEED], share])
    return pandas.DataFrame(rows, columns=["generator", "batch", "best", "ms", *SPEED, "share_of_roofline"])


def roofline_seconds(results: dict, generator: str, batch_size: int, stack: list[str]) -> float:
    """The least seconds for a step's operators, each by itself; those that a compiler would fuse are not fused."""
    names = [name for name in stack if name != "baseline" and name not in GPU_ONLY]
    operators = step_operators(labkit.CycleGAN(generator), *names, batch_size=batch_size)
    work_alone = replace(surveyed_roofline(results), least_us=0.0)
    return sum(work_alone.microseconds(one.flops, one.bytes_moved, one.dtype) for one in operators) / 1e6


def two_streams(results: dict) -> pandas.DataFrame:
    """Two streams against one: the whole step, and the cycles alone, which the course paper timed."""
    rows = [
        [scope, generator, batch_size, *table.loc["streams", [*SPEED, "verdict"]]]
        for scope in ("step", "forward")
        for generator, batch_size, table in comparisons(results, scope)
        if "streams" in table.index
    ]
    return pandas.DataFrame(rows, columns=["scope", "generator", "batch", *SPEED, "verdict"])


def energy(results: dict) -> pandas.DataFrame:
    """Joules a step, before and after each speed-up."""
    rows = []
    for row in results["rows"].values():
        if row["kind"] == "energy":
            before, after = (statistics.median(joules) for joules in row["joules_per_step"].values())
            rows.append([row["batch_size"], "+".join(row["speedups"]), before, after, before / after])
    return pandas.DataFrame(rows, columns=["batch", "speedups", "J before", "J after", "times less"])


def idle(name: str, results: dict, data: Path = DATA) -> pandas.DataFrame:
    """A row a shipped trace: milliseconds of a step, the share that the GPU is idle, and that share by its causes."""
    rows = {}
    for row in results["rows"].values():
        if row["kind"] == "trace" and (file := shipped_as(row)):
            trace = labkit.Trace(data / "traces" / name / file)
            summary, causes = trace.summary().iloc[0], trace.idle()
            of_device = causes[causes["scope"] == "device"].set_index("cause")["share_of_wall"]
            steps = trace.temporal(by="step")["step"].nunique()
            rows[file] = {"ms": summary["wall_us"] / steps / 1e3, "idle": summary["idle_of_wall"], **of_device}
    return pandas.DataFrame.from_dict(rows, orient="index")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the device: a file in data/results, without .json")
    name = parser.parse_args().name
    results = read(DATA / "results" / f"{name}.json")
    tables = {
        "best stack, against eager PyTorch": best_stacks(results),
        "two streams": two_streams(results),
        "another model, against CycleGAN with the same speed-ups": races_of(results),
        "energy": energy(results),
        "idle time": idle(name, results),
    }
    for title, table in tables.items():
        print(f"\n{title}\n{table.round(3).to_string()}")
