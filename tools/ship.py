"""Bring what `tools/survey.py` wrote on a GPU into data/, in the form that is shipped.

    python tools/ship.py out/survey [out/survey2 ...] --name h200     # folders of one device, the last results count

results.json becomes data/results/NAME.json. Traces become data/traces/NAME/*.json.gz under the names that
`labkit.gpu_trace` looks for, and thinned: the last steps only, as many as fit into the budget of bytes, without what no
reader of traces needs. Arrows from launches to kernels stay, for Perfetto and TraceLens, and so do the dimensions and
types of the operators' inputs, from which FLOPs are counted.
"""

import argparse
import gzip
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from labkit.course.shipped import DATA, shipped_as
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.measure.results import read
from labkit.measure.results import write as write_results
from labkit.traces.dialects import CATEGORIES
from labkit.traces.reading import GPU_WORK

FILE = "results.json"  # as tools/survey.py writes it
STEPS = 8  # of those recorded; the stamp says that there were more
BUDGET = 8_000_000  # bytes of a shipped trace; fewer steps are kept if it would be larger
LAUNCH = {"stream", "correlation", "device", "bytes", "External id", "external id", "Sequence number"}
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
    trace = load(source)
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
    return span["name"].startswith("ProfilerStep#") and category(span) in ("user_annotation", "cpu_op")


def category(event: dict) -> str | None:
    """The category of an event by the name that PyTorch gives it today."""
    return CATEGORIES.get(event.get("cat"), event.get("cat"))


def _part(events: list[dict], marks: list[dict]) -> list[dict]:
    """What is kept of the events of these steps."""
    start, stop = marks[0]["ts"], marks[-1]["ts"] + marks[-1]["dur"]
    spans = [event for event in events if event.get("ph") == "X"]
    # A call and its kernels share a correlation: when the call began is when all of them count.
    on_host = [span for span in spans if category(span) in ("cuda_runtime", "cuda_driver")]
    called = {span["args"]["correlation"]: span["ts"] for span in on_host if "correlation" in span["args"]}

    def belongs(span: dict) -> bool:
        return start <= called.get(span.get("args", {}).get("correlation"), span["ts"]) <= stop

    return kept_of(events, [span for span in spans if belongs(span)])


def kept_of(events: list[dict], spans: Iterable[dict]) -> list[dict]:
    """Names of processes and threads, these spans with the arguments that are kept, and the arrows to their kernels."""
    thinned = []
    for span in spans:
        if category(span) != "Trace":  # the profiler's own, over the whole recording, which this need not be
            arguments = {name: value for name, value in span.get("args", {}).items() if name in KEPT_ARGUMENTS}
            thinned.append(span | {"args": arguments})
    on_gpu = [span for span in thinned if category(span) in GPU_WORK or "stream" in span["args"]]
    linked = {span["args"].get("correlation") for span in on_gpu}
    names = [event for event in events if event.get("ph") == "M"]
    arrows = [event for event in events if event.get("cat") in ARROWS and event.get("id") in linked]
    return [*names, *thinned, *arrows]


def load(source: Path) -> dict:
    """The content of a trace file. Its times are exact: a float of 2^50 microseconds has steps of a quarter of one."""
    opened = gzip.open if source.name.endswith(".gz") else open
    with opened(source, "rt", encoding="utf-8") as file:
        return json.load(file, parse_float=Decimal)


def write(trace: dict, target: Path) -> None:
    """Writes a trace, compressed as far as possible; the same trace gives the same bytes."""
    others = _as_json({name: value for name, value in trace.items() if name != "traceEvents"})
    text = others[:-1] + ',"traceEvents":[' + ",\n".join(map(_event_as_json, trace["traceEvents"])) + "]}"
    with atomic_write(target) as part, open(part, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def _event_as_json(event: dict) -> str:
    """Times digit by digit, as they were read; json can write a Decimal only as a text or a float."""
    times = [f',"{name}":{event[name]}' for name in ("ts", "dur") if name in event]
    rest = {name: value for name, value in event.items() if name not in ("ts", "dur")}
    return _as_json(rest)[:-1] + "".join(times) + "}"


def _as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=float)


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
