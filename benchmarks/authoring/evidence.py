"""Bring what a visit to a GPU has measured into data/, in the form that is shipped.

    python -m benchmarks.authoring.evidence NAME out/visit    # NAME is short, and new: h200_graphs, t4

results.json becomes data/results/NAME.json. Traces become data/traces/NAME/*.json.gz under the names
that `labcourse.gpu_trace` looks for, and thinned: the last steps only, as many as fit into the budget of bytes, without
what no reader of traces needs. Arrows from launches to kernels stay, for Perfetto and TraceLens, and so do the
dimensions and types of the operators' inputs, from which FLOPs are counted.
"""

import argparse
import gzip
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from benchmarks.authoring.visit import RESULTS_FILE
from labcourse.shipped import BENCHMARK_OFF, DATA, shipped_as
from labkit.errors import LabkitError
from labkit.measure.tables import read_results, write_results
from labtrace.files import atomic_write

KEPT_STEPS = 8  # of those recorded; the stamp says that there were more
MOST_BYTES = 8_000_000  # bytes of a shipped trace; fewer steps are kept if it would be larger
KEPT_ARGUMENTS = {"stream", "correlation", "device", "bytes", "External id", "external id", "Sequence number"}
KEPT_ARGUMENTS |= {"wait_on_stream", "wait_on_cuda_event_record_corr_id", "Input Dims", "Input type", "Concrete Inputs"}


def ship(folder: Path, name: str, data: Path = DATA) -> list[Path]:
    """Writes the results and the traces of a visit's folder under `data`; returns the files.

    Raises:
        LabkitError: there are no results, they are not of a GPU, or a trace that they name is missing.
    """
    results = read_results(folder / RESULTS_FILE)
    if results["stamp"].get("ran_on") != "cuda":
        raise LabkitError(f"{folder}: measured on {results['stamp'].get('device')}, which is no GPU.")
    shipped = [data / "results" / f"{name}.json"]
    for file, row in shipped_rows(results).items():
        source = folder / row["file"]
        if not source.exists():
            raise LabkitError(f"{source}: missing, and {RESULTS_FILE} names it. Copy the visit's whole folder.")
        shipped.append(data / "traces" / name / file)
        thin(source, shipped[-1], {"cudnn_benchmark": row["benchmark"]})
    write_results(results, shipped[0])
    return shipped


def shipped_rows(results: Mapping) -> dict[str, dict]:
    """The rows of the traces that are shipped, by their files: those that `labcourse.gpu_trace` can be asked for, and
    the same with cuDNN's benchmark mode off."""
    rows = {}
    for row in results["rows"].values():
        if row["kind"] == "trace" and (file := shipped_as(row | {"benchmark": True})):
            rows[file if row["benchmark"] else BENCHMARK_OFF + file] = row
    return rows


def thin(source: Path, target: Path, stamp: Mapping, steps: int = KEPT_STEPS, budget: int = MOST_BYTES) -> None:
    """Writes the last `steps` steps of the trace `source` to `target`, without call stacks and launch geometry.

    Work on the GPU goes with the call that launched it. If the file is larger than `budget` bytes, fewer steps are
    kept, at least one. `stamp` is added to that of the trace. Times are exact: a float of 2^50 microseconds, as clocks
    have them, has steps of a quarter of one.
    """
    with gzip.open(source, "rt", encoding="utf-8") as file:
        trace = json.load(file, parse_float=Decimal)
    events = trace["traceEvents"]
    spans = [event for event in events if event["ph"] == "X" and event["cat"] != "Trace"]  # the profiler's own
    marks = [span for span in spans if span["name"].startswith("ProfilerStep#") and span["cat"] == "user_annotation"]
    marks.sort(key=lambda mark: mark["ts"])
    # A call and its kernels share a correlation: when the call began is when all of them count.
    calls = [span for span in spans if span["cat"] in ("cuda_runtime", "cuda_driver")]
    called = {call["args"]["correlation"]: call["ts"] for call in calls if "correlation" in call["args"]}
    for kept in range(min(steps, len(marks)), 0, -1):
        start, stop = marks[-kept]["ts"], marks[-1]["ts"] + marks[-1]["dur"]
        thinned, linked = [], set()
        for span in spans:
            arguments = span.get("args", {})
            if start <= called.get(arguments.get("correlation"), span["ts"]) <= stop:
                thinned.append(span | {"args": {k: value for k, value in arguments.items() if k in KEPT_ARGUMENTS}})
                if "stream" in arguments:
                    linked.add(arguments.get("correlation"))
        names = [event for event in events if event["ph"] == "M"]
        arrows = [event for event in events if event.get("cat") == "ac2g" and event["id"] in linked]
        text = f"the last {kept} of {len(marks)} steps, without call stacks and launch geometry"
        trace["labkit"] |= {**stamp, "thinned": text, "steps": kept}
        write(trace | {"traceEvents": [*names, *thinned, *arrows]}, target)
        if target.stat().st_size <= budget:
            break


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the device or the visit, short and new")
    parser.add_argument("folder", type=Path, help="of the visit")
    arguments = parser.parse_args()
    for file in ship(arguments.folder, arguments.name):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
