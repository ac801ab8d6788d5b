"""What a survey of a GPU says: bring it into data/ in the form that is shipped, and print the answers.

    python -m tools.evidence h200 out/survey [out/survey2 ...]      # ship the folders of one device, and print
    python -m tools.evidence h200                                   # print what is shipped
    python -m tools.evidence public      # how far a replay is from recordings by others: a step of ResNet-50

results.json of the last folder becomes data/results/NAME.json. Traces become data/traces/NAME/*.json.gz under the names
that `labkit.gpu_trace` looks for, and thinned: the last steps only, as many as fit into the budget of bytes, without
what no reader of traces needs. Arrows from launches to kernels stay, for Perfetto and TraceLens, and so do the
dimensions and types of the operators' inputs, from which FLOPs are counted.

The answers are a table for each question: how much faster the best stack of speed-ups is, and how near to the roofline;
whether two streams pay; one generator against CycleGAN; energy; idle time by its causes; and how well replays foretell
the traces.
"""

import argparse
import gzip
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas

import labkit
from labkit.course import races_of, resnet50_errors
from labkit.course.shipped import DATA, shipped_as
from labkit.errors import LabkitError
from labkit.files import atomic_write
from labkit.measure import pick
from labkit.measure.results import from_json, read
from labkit.measure.results import write as write_results
from labkit.simulate import Replay, read_launches, replay, step_operators, what_if
from labkit.simulate.cost_model import Roofline
from labkit.simulate.operators import GPU_ONLY
from labkit.traces.dialects import CATEGORIES
from labkit.traces.reading import GPU_WORK

FILE = "results.json"  # as tools/survey.py writes it
STEPS = 8  # of those recorded; the stamp says that there were more
BUDGET = 8_000_000  # bytes of a shipped trace; fewer steps are kept if it would be larger
LAUNCH = {"stream", "correlation", "device", "bytes", "External id", "external id", "Sequence number"}
WAITS = {"wait_on_stream", "wait_on_cuda_event_record_corr_id"}
KEPT_ARGUMENTS = LAUNCH | WAITS | {"Input Dims", "Input type", "Concrete Inputs"}
ARROWS = {"ac2g", "async_cpu_to_gpu", "async"}  # categories of today, of PyTorch 1.11 to 1.12, and before
SPEED = ["times_faster", "times_faster_low", "times_faster_high"]
REPLAYED = 2  # steps


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


def comparison_of(
    results: Mapping, generator: str = "resnet_9blocks", batch_size: int = 1, scope: str = "step"
) -> pandas.DataFrame:
    """The timings of one CycleGAN, batch and scope: one row a stack of speed-ups, "a+b", as `labkit.compare` has them.

    Each stack was timed against a baseline in its own comparison; the baseline's two rows are from the comparison of
    the baseline alone. A stack that a correctness row of the survey found wrong is "not equivalent". share_of_peak is
    of the device's fastest matrix product in float32, with TF32 where it has that.

    Args:
        results: from `labkit.gpu_results`.
        generator, batch_size: which CycleGAN, on 256 x 256 pictures.
        scope: "step", or "forward" for its two cycles alone.

    Raises:
        LabkitError: the survey has no such timings.
    """
    timings = f"timing/{scope}/{generator}/256/b{batch_size}/tf32=default/"
    if f"{timings}baseline" not in results["rows"]:
        raise LabkitError(
            f"no baseline of {generator}, batch {batch_size}, {scope} in this survey: run `python -m tools.survey` "
            "again to continue it, or choose another."
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


def comparisons(results: dict, scope: str) -> Iterator[tuple[str, int, pandas.DataFrame]]:
    """Generator, batch size and the timings of it, of those that were surveyed."""
    for generator in ("resnet_9blocks", "unet_256"):
        for batch_size in (1, 4, 16):
            try:
                yield generator, batch_size, comparison_of(results, generator, batch_size, scope)
            except LabkitError:
                continue  # not in this survey


def surveyed_roofline(results: Mapping) -> Roofline:
    """The limits of a GPU as its survey measured them: the rates of large matrix products and copies, in full.

    Args:
        results: from `labkit.gpu_results`.
    """
    measured = results["rows"]["device"]
    rates = dict(measured["matmul_flop_per_s"])
    no_tensor_cores = () if "tf32" in rates else ("float32",)
    rates["float32"] = rates.pop("tf32", rates["float32"])  # as PyTorch computes convolutions by default
    bytes_per_s = measured["copy_bytes_per_s"]
    device = f"{results['stamp']['device']}, as surveyed"
    return Roofline(device, rates, bytes_per_s, flops_share=1.0, bytes_share=1.0, no_tensor_cores=no_tensor_cores)


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


def replay_errors(name: str, data: Path = DATA) -> pandas.DataFrame:
    """How far replays are from what was recorded of a device: a row a shipped trace, by its file.

    | column | meaning |
    |---|---|
    | unmodified | the same trace played again, times the recorded wall time; 1 is right |
    | predicted | its step played without it, times the same: from the operators that PyTorch would run, the survey's
      durations or else rates, and the host's time for a launch in the baseline of batch 1 |
    | measured durations | the share of kernels whose duration the survey has |

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
            predicted = played.timeline.wall / REPLAYED / (wall / steps)
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
    return replay(operators, graph="graph" in row["speedups"], steps=REPLAYED, **how)


def tables(name: str) -> dict[str, pandas.DataFrame]:
    """The answers of a device that is shipped, by their titles."""
    results = read(DATA / "results" / f"{name}.json")
    return {
        "best stack, against eager PyTorch": best_stacks(results),
        "two streams": two_streams(results),
        "another model, against CycleGAN with the same speed-ups": races_of(results),
        "energy": energy(results),
        "idle time": idle(name, results),
        "replays, times what was recorded": replay_errors(name),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help='of the device, short: h200, t4; or "public"')
    parser.add_argument("folders", nargs="*", type=Path, help="of its survey, the last one with all results")
    arguments = parser.parse_args()
    for file in ship(arguments.folders, arguments.name) if arguments.folders else []:
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
    if arguments.name == "public":
        found = {
            name: resnet50_errors(labkit.public_trace(name)) for name in ("resnet50_workers0", "resnet50_workers4")
        }
    else:
        found = tables(arguments.name)
    for title, table in found.items():
        print(f"\n{title}\n{table.round(3).to_string()}")
