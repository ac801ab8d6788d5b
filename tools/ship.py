"""Bring what `labkit survey` wrote on a GPU into data/, in the form that is shipped.

    python tools/ship.py out/survey [out/survey2 ...] --name h200     # folders of one device, the last results count

results.json becomes data/results/NAME.json. Traces become data/traces/NAME/*.json.gz under the names that
`labkit.gpu_trace` looks for, and thinned: the last steps only, as many as fit into the budget of bytes, without what no
reader of traces needs. Arrows from launches to kernels stay, for Perfetto and TraceLens, and so do the dimensions and
types of the operators' inputs, from which FLOPs are counted.
"""

import argparse
import gzip
import json
from pathlib import Path

from labkit.course.shipped import DATA, shipped_as
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.measure.results import read
from labkit.measure.results import write as write_results
from labkit.measure.survey import FILE

STEPS = 8  # of those recorded; the stamp says that there were more
BUDGET = 8_000_000  # bytes of a shipped trace; fewer steps are kept if it would be larger
LAUNCH = {"stream", "correlation", "device", "bytes", "External id", "Sequence number"}
WAITS = {"wait_on_stream", "wait_on_cuda_event_record_corr_id"}
KEPT_ARGUMENTS = LAUNCH | WAITS | {"Input Dims", "Input type", "Concrete Inputs"}
ARROWS = {"ac2g", "async_cpu_to_gpu", "async"}  # categories of today, of PyTorch 1.11 to 1.12, and before


def thin(source: Path, target: Path, steps: int = STEPS, budget: int = BUDGET) -> None:
    """Writes the last `steps` steps of the trace `source` to `target`, without call stacks and launch geometry.

    Work on the GPU goes with the call that launched it, or without one by when it began. If the file is larger than
    `budget` bytes, fewer steps are kept, at least one.

    Raises:
        LabkitError: no step is marked in it.
    """
    opened = gzip.open if source.name.endswith(".gz") else open
    with opened(source, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    marks = [mark for mark in trace["traceEvents"] if mark.get("ph") == "X" and _is_step(mark)]
    if not marks:
        raise LabkitError(f"{source}: no step is marked in it. Record it with labkit.record.")
    marks.sort(key=lambda mark: mark["ts"])
    for kept in range(min(steps, len(marks)), 0, -1):
        stamp = trace["labkit"] | {
            "thinned": f"the last {kept} of {len(marks)} steps, without call stacks and launch geometry",
            "steps": kept,
        }
        write(trace | {"labkit": stamp, "traceEvents": _part(trace["traceEvents"], marks[-kept:])}, target)
        if target.stat().st_size <= budget:
            break


def _is_step(span: dict) -> bool:
    return span["name"].startswith("ProfilerStep#") and span["cat"] == "user_annotation"


def _part(events: list[dict], marks: list[dict]) -> list[dict]:
    """Names of processes and threads, the events of these steps with the arguments that are kept, and their arrows."""
    start, stop = marks[0]["ts"], marks[-1]["ts"] + marks[-1]["dur"]
    spans = [event for event in events if event.get("ph") == "X"]
    # A call and its kernels share a correlation: when the call began is when all of them count.
    on_host = [span for span in spans if span.get("cat") in ("cuda_runtime", "cuda_driver")]
    called = {span["args"]["correlation"]: span["ts"] for span in on_host if "correlation" in span["args"]}

    def belongs(span: dict) -> bool:
        return start <= called.get(span.get("args", {}).get("correlation"), span["ts"]) <= stop

    # "Trace" is the profiler's own span over the whole recording, which this no longer is.
    chosen = [span for span in spans if span.get("cat") != "Trace" and belongs(span)]
    thinned = []
    for span in chosen:
        arguments = {name: value for name, value in span.get("args", {}).items() if name in KEPT_ARGUMENTS}
        thinned.append(span | {"args": arguments})
    linked = {span["args"].get("correlation") for span in thinned if "stream" in span["args"]}
    names = [event for event in events if event.get("ph") == "M"]
    arrows = [event for event in events if event.get("cat") in ARROWS and event.get("id") in linked]
    return [*names, *thinned, *arrows]


def write(trace: dict, target: Path) -> None:
    """Writes a trace, compressed as far as possible; the same trace gives the same bytes."""
    with atomic_write(target) as part, open(part, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(json.dumps(trace, separators=(",", ":")).encode())


def ship(folders: list[Path], name: str, data: Path = DATA) -> list[Path]:
    """Writes the results of the last folder and the traces of all of them under `data`; gives the files.

    Raises:
        LabkitError: there are no results, they are not of a GPU, or a trace they name is in none of the folders.
    """
    found = read(folders[-1] / FILE)
    if found["stamp"].get("ran_on") != "cuda":
        raise LabkitError(f"{folders[-1]}: measured on {found['stamp'].get('device')}, which is no GPU.")
    shipped = []
    for row in found["rows"].values():
        if row["kind"] != "trace" or not (file := shipped_as(row)):
            continue
        sources = [folder / row["file"] for folder in folders if (folder / row["file"]).exists()]
        if not sources:
            raise LabkitError(f"{row['file']}: in none of the folders. Name those of all calls of the survey.")
        shipped.append(data / "traces" / name / file)
        thin(sources[-1], shipped[-1])
    write_results(found, data / "results" / f"{name}.json")
    return [*shipped, data / "results" / f"{name}.json"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--name", required=True, help="of the device, short: h200, t4")
    arguments = parser.parse_args()
    for file in ship(arguments.folders, arguments.name):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
