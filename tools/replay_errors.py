"""How far replays are from what was recorded of a GPU that is shipped in data/.

    python tools/replay_errors.py h200
    python tools/replay_errors.py public      # recordings by others: a step of ResNet-50, without its trace

A row a shipped trace. "unmodified" is the same trace played again; "predicted" is its step played without it: from the
operators that PyTorch would run, the survey's durations, for the others its rates, and the host's time for a launch in
the baseline of batch 1. Both are times the recorded wall time; 1 is right. "measured durations" is the share of kernels
whose duration the survey has. Of "public" see `labkit.course.resnet50`.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import pandas

import labkit
from labkit.course import resnet50_errors
from labkit.course.shipped import DATA, shipped_as
from labkit.errors import LabkitError
from labkit.measure.results import read
from labkit.simulate import Replay, read_launches, replay, step_operators, surveyed_roofline, what_if

STEPS = 2


def replay_errors(name: str, data: Path = DATA) -> pandas.DataFrame:
    """The table, of the device called `name`: a row a trace, by its file.

    Raises:
        LabkitError: of this device no survey or no baseline of batch 1 is shipped.
    """
    results = read(data / "results" / f"{name}.json")
    found, roofline = results["rows"].values(), surveyed_roofline(results)
    rows = {file: row for row in found if row["kind"] == "trace" and (file := shipped_as(row))}
    traces = {file: labkit.Trace(data / "traces" / name / file) for file in rows}
    known = {key: us for row in found if row["kind"] == "durations" for key, us in row["microseconds"].items()}
    host_us = _host_us(rows, traces)
    table = {}
    for file, trace in traces.items():
        wall = trace.summary()["wall_us"].item()
        steps = trace.temporal(by="step")["step"].nunique()
        try:
            played = _played(rows[file], host_us=host_us, durations=known, roofline=roofline)
            share = played.assumed["constants"]["share_of_kernels_with_measured_duration"]
            predicted = played.timeline.wall / STEPS / (wall / steps)
        except LabkitError:  # of "compile" nobody knows the operators
            predicted = share = float("nan")
        unmodified = what_if(trace).timeline.wall / wall
        table[file] = {"unmodified": unmodified, "predicted": predicted, "measured durations": share}
    return pandas.DataFrame.from_dict(table, orient="index")


def _host_us(rows: dict[str, dict], traces: dict[str, labkit.Trace]) -> float:
    """The host's microseconds for a launch, the mean over the baseline of batch 1."""
    for file, row in rows.items():
        if row["batch_size"] == 1 and not row["speedups"]:
            (rank,) = traces[file].ranks.values()
            return statistics.mean(launch.host_us for launch in read_launches(rank).launches)
    raise LabkitError("no trace of a baseline of batch 1: go on with the survey, and ship it again.")


def _played(row: dict, **how: Any) -> Replay:
    names = [name for name in row["speedups"] if name != "graph"]
    operators = step_operators(labkit.CycleGAN(**row["settings"]), *names, batch_size=row["batch_size"])
    return replay(operators, graph="graph" in row["speedups"], steps=STEPS, **how)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help='of the device: a file in data/results, without .json; or "public"')
    name = parser.parse_args().name
    if name == "public":
        for recording in ("resnet50_workers0", "resnet50_workers4"):
            print(recording, resnet50_errors(labkit.public_trace(recording)).round(3).to_string(), sep="\n")
    else:
        print(replay_errors(name).round(3).to_string())
