"""Bring the survey of a GPU into data/ in the form that is shipped, and print the answers.

    python -m benchmarks.authoring.evidence h200 out/survey   # ship the survey of one device, and print
    python -m benchmarks.authoring.evidence h200              # print what is shipped

results.json becomes data/results/NAME.json. Traces become data/traces/NAME/*.json.gz under the names
that `labcourse.gpu_trace` looks for, and thinned: the last steps only, as many as fit into the budget of bytes, without
what no reader of traces needs. Arrows from launches to kernels stay, for Perfetto and TraceLens, and so do the
dimensions and types of the operators' inputs, from which FLOPs are counted.

The answers are a table for each question: how much faster the best stack of speed-ups is, and how near to the roofline;
whether two streams pay; all steps, other models among them; and of each trace its busy and idle time, and how well
replays predict it.
"""

import argparse
import gzip
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pandas

import labcourse
import labkit
from benchmarks.authoring.plan import Item
from benchmarks.authoring.survey import RESULTS_FILE
from labcourse.shipped import BENCHMARK_OFF, DATA, shipped_as
from labkit.errors import LabkitError
from labkit.measure.autotune import pick
from labkit.measure.tables import from_json, read_results, write_results
from labkit.models import MODELS
from labkit.simulate import replay, step_operators
from labkit.simulate.cost_model import Roofline
from labkit.simulate.meta_device import GPU_ONLY
from labkit.simulate.operator_replay import HOST_US
from labtrace.events.dialects import COMPUTE, first_fitting
from labtrace.files import atomic_write
from labtrace.replay import read_launches

KEPT_STEPS = 8  # of those recorded; the stamp says that there were more
MOST_BYTES = 8_000_000  # bytes of a shipped trace; fewer steps are kept if it would be larger
KEPT_ARGUMENTS = {"stream", "correlation", "device", "bytes", "External id", "external id", "Sequence number"}
KEPT_ARGUMENTS |= {"wait_on_stream", "wait_on_cuda_event_record_corr_id", "Input Dims", "Input type", "Concrete Inputs"}
SPEED_COLUMNS = ["times_faster", "times_faster_low", "times_faster_high"]
REPLAYED_STEPS = 2  # steps
# Kinds of kernels by a pattern of their names; the first that fits counts.
KINDS = {"copies": "^Mem", "batch norm": "batch_norm|bn_[fb]w", "padding": "reflection_pad"}
KINDS |= {"nhwc, norms": "^(?:gradient_)?sums_kernel|^norm_(?:backward_)?kernel"}
KINDS |= {"nhwc, ends": "^(?:pack|unpack|add|spread)_kernel", **COMPUTE}
HOSTS_US = (5.0, HOST_US)  # microseconds a launch: of a fast host, and of the course paper's


def ship(folder: Path, name: str, data: Path = DATA) -> list[Path]:
    """Writes the results and the traces of a survey's folder under `data`; returns the files.

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
            raise LabkitError(f"{source}: missing, and {RESULTS_FILE} names it. Copy the survey's whole folder.")
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
        said = f"the last {kept} of {len(marks)} steps, without call stacks and launch geometry"
        trace["labkit"] |= {**stamp, "thinned": said, "steps": kept}
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


def comparisons(results: Mapping) -> Iterator[tuple[str, int, pandas.DataFrame]]:
    """Generator, batch size and the timings of it, of those that were surveyed.

    A table has a row for each stack of speed-ups, "a+b", as `labkit.compare` has them. Each was timed against a
    baseline in its own comparison; the baseline's two rows are from the comparison of the baseline alone. A stack that
    a correctness row of the survey found wrong is "not equivalent".
    """
    failed = [row for row in results["rows"].values() if row["kind"] == "correctness" and not row["ok"]]
    for generator, batch_size in itertools.product(("resnet_9blocks", "unet_256"), (1, 16)):
        timings = f"timing/{generator}/256/b{batch_size}/tf32=default/"
        found = {key.removeprefix(timings): row for key, row in results["rows"].items() if key.startswith(timings)}
        if "baseline" in found:
            tables = {stack: from_json(row["comparison"]) for stack, row in found.items()}
            baseline = tables.pop("baseline")
            table = pandas.concat([baseline, *(each.loc[[stack]] for stack, each in tables.items())])
            table.loc[table.index.isin(["+".join(row["speedups"]) for row in failed]), "verdict"] = "not equivalent"
            yield generator, batch_size, table


def surveyed_roofline(results: Mapping) -> Roofline:
    """The limits of a GPU as its survey measured them: the rates of large matrix products and copies, in full."""
    measured = results["rows"]["device"]
    rates = dict(measured["matmul_flop_per_s"])
    if "tf32" in rates:
        rates["tfloat32"] = rates.pop("tf32")
    bytes_per_s = measured["copy_bytes_per_s"]
    device = f"{results['stamp']['device']}, as surveyed"
    return Roofline(device, rates, bytes_per_s, flops_share=1.0, bytes_share=1.0)


def best_stacks(results: Mapping) -> pandas.DataFrame:
    """The fastest stack of each network and batch, and the share of its time that its work takes on the roofline."""
    rows = []
    for generator, batch_size, table in comparisons(results):
        best = pick(table)
        seconds = table.loc[best, "median_s"]
        share = roofline_seconds(results, generator, batch_size, best.split("+")) / seconds
        rows.append([generator, batch_size, best, 1e3 * seconds, *table.loc[best, SPEED_COLUMNS], share])
    return pandas.DataFrame(rows, columns=["generator", "batch", "best", "ms", *SPEED_COLUMNS, "share_of_roofline"])


def roofline_seconds(results: Mapping, generator: str, batch_size: int, stack: list[str]) -> float:
    """The least seconds for a step's operators, each by itself; those that a compiler would fuse are not fused."""
    names = [name for name in stack if name != "baseline" and name not in GPU_ONLY]
    operators = step_operators(labkit.CycleGAN(generator), *names, batch_size=batch_size)
    work_alone = replace(surveyed_roofline(results), least_us=0.0)
    kinds = [work_alone.arithmetic(one.dtype, is_convolution="convolution" in one.name) for one in operators]
    each = zip(operators, kinds, strict=True)
    return sum(work_alone.microseconds(one.flops, one.bytes_moved, kind) for one, kind in each) / 1e6


def predictions(items: Iterable[Item], roofline: Roofline) -> pandas.DataFrame:
    """Milliseconds of the timings and races of a survey on a device with these limits, before they are measured:
    SIMULATED, with the hosts of data/paper. NaN where the operators of a speed-up are not known."""
    rows = {}
    for item in items:
        names = [name for name in item.speedups if name != "graph"]
        try:
            model = MODELS[item.model](**item.settings)
            operators = step_operators(model, *names, batch_size=item.batch_size, size=item.size)
        except LabkitError:  # of "channels_last", and of what compiles
            operators = []
        for host_us in HOSTS_US:
            ms = float("nan")
            if operators:
                played = replay(operators, host_us, roofline, graph="graph" in item.speedups, steps=REPLAYED_STEPS)
                ms = played.timeline.wall / REPLAYED_STEPS / 1e3
            rows.setdefault(item.key, {})[f"SIMULATED_ms_host_{host_us:g}_us"] = ms
    return pandas.DataFrame.from_dict(rows, orient="index").round(3).rename_axis("key")


def foretold_rows(name: str) -> str:
    """The rows of the table in docs/trust.md: the steps of a survey beside what was foretold of them."""
    table = labcourse.gpu_steps(name).sort_values(["batch_size", "model", "times_faster"])
    simulated = table.set_index(["model", "batch_size", "speedups"])["SIMULATED_ms"]
    rows = []
    for step in table.itertuples():
        own, called = "baseline", step.speedups.replace("batched+fused_adam+out_of_place", "fewer launches")
        if step.model != "CycleGAN":
            own, called = step.speedups, f"one generator, deviation loss for both domains: {called}"
        faster, foretold, played = "", "", simulated["CycleGAN", step.batch_size, own] / step.SIMULATED_ms
        if step.verdict != "noise":
            faster = f"{step.times_faster:.2f} ({step.low:.2f} to {step.high:.2f})"
            foretold = f"{played:.2f}"
        cells = [step.batch_size, called.replace("+", ", "), f"{step.ms:.1f}", f"{step.baseline_ms:.1f}", faster]
        cells += ["", ""] if math.isnan(played) else [f"{step.SIMULATED_ms:.1f}", foretold]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def recordings(name: str, data: Path = DATA) -> pandas.DataFrame:
    """A row a shipped trace, by its file.

    | column | unit | meaning |
    |---|---|---|
    | alone_ms, ms | milliseconds | of a step after the recording, in the process that it slowed, and in the recording |
    | busy_ms, sum_ms | milliseconds | of a step's kernels, the union and the sum |
    | launches | | kernels of a step |
    | ms, and a kind | milliseconds | the sum of these kernels of a step; NaN if there are none |
    | idle, and one for each cause | 0 to 1 | of the wall time |
    | unmodified | | the same trace played again, times the recorded wall time; 1 is right |
    | predicted | | its step played without it, times the same: from the operators that PyTorch would run, the surveyed
      rates, and the host's time for a launch in the baseline of batch 1. NaN where the operators are not known |

    Raises:
        LabkitError: of this device no survey or no baseline of batch 1 is shipped.
    """
    results = read_results(data / "results" / f"{name}.json")
    rows, roofline = shipped_rows(results), surveyed_roofline(results)
    traces = {file: labkit.Trace(data / "traces" / name / file) for file in rows}
    baselines = [file for file, row in rows.items() if row["batch_size"] == 1 and not row["speedups"]]
    if not baselines:
        raise LabkitError("no trace of a baseline of batch 1: go on with the survey, and ship it again.")
    (rank,) = traces[baselines[0]].ranks.values()
    host_us = statistics.mean(launch.host_us for launch in read_launches(rank).launches)
    table = {}
    for file, trace in traces.items():
        row, names = rows[file], [speedup for speedup in rows[file]["speedups"] if speedup != "graph"]
        steps, kernels = trace.temporal(by="step")["step"].nunique(), trace.kernels()
        kinds = kernels["total_us"].groupby(first_fitting(kernels["name"], KINDS)).sum()
        parts = trace.temporal().set_index("part")["us"]
        causes = trace.idle().query("scope == 'device'").set_index("cause")["share_of_wall"]
        try:
            operators = step_operators(labkit.CycleGAN(**row["settings"]), *names, batch_size=row["batch_size"])
            graph = "graph" in row["speedups"]
            played = replay(operators, host_us, roofline, graph=graph, steps=REPLAYED_STEPS)
            predicted = played.timeline.wall / REPLAYED_STEPS
        except LabkitError:  # the operators of "compile" are not known
            predicted = float("nan")
        table[file] = {
            "alone_ms": 1e3 * row["seconds_per_step"],
            "ms": parts["wall"] / steps / 1e3,
            "busy_ms": parts["busy"] / steps / 1e3,
            "sum_ms": kernels["total_us"].sum() / steps / 1e3,
            "launches": kernels["count"].sum() / steps,
            **(kinds / steps / 1e3).add_prefix("ms, "),
            "idle": parts["idle"] / parts["wall"],
            **causes,
            "unmodified": trace.what_if().timeline.wall / parts["wall"],
            "predicted": predicted * steps / parts["wall"],
        }
    return pandas.DataFrame.from_dict(table, orient="index")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the device, short: h200, t4")
    parser.add_argument("folder", nargs="?", type=Path, help="of its survey")
    arguments = parser.parse_args()
    if arguments.folder:
        for file in ship(arguments.folder, arguments.name):
            print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
    surveyed = read_results(DATA / "results" / f"{arguments.name}.json")
    for title, table in {
        "best stack, against eager PyTorch": best_stacks(surveyed),
        "two streams": labcourse.gpu_streams(arguments.name),
        "all steps, and what was foretold of them": labcourse.gpu_steps(arguments.name),
        "the traces, and replays as times what was recorded": recordings(arguments.name),
    }.items():
        print(f"\n{title}\n{table.round(3).to_string()}")
