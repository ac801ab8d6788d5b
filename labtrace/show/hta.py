"""The view "hta": the tables of Holistic Trace Analysis under their own names, and labtrace's numbers beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError, check_known
from labtrace.show.bars import Traces, analysis_of, by_name, finish, rank_names, readable
from labtrace.show.style import escaped, shortened, table_of
from labtrace.trace import Trace

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

TOP = 3  # kernels whose statistics are shown
AGREE = 0.005  # relative difference that is no difference: HTA rounds percentages
ON_GPU = ("kernel", "memcpy", "memset")  # categories of events: "gpu_memcpy", or "Memcpy" in old recordings


def hta(traces: Traces, table: str = "temporal") -> go.Figure:
    """A table of HTA's beside labtrace's numbers and, where they differ, the reasons that the recording shows.

    HTA reads the files itself, and always the whole recording. The view also takes a `TraceAnalysis` that you
    made, with its settings.

    Args:
        traces: a trace, or traces by name.
        table: "temporal" for `get_temporal_breakdown`, "idle" for `get_idle_time_breakdown`, or "launches" for
            `get_cuda_kernel_launch_stats` by kernel. Times are in microseconds.

    Raises:
        LabError: HTA is not installed, cannot read the recording, or has no such table; or a process used several
            GPUs.
        TraceError: there is no GPU activity.
    """
    check_known("table", table, TABLES)
    parts, notes = [], []
    for name, trace in by_name(traces).items():
        for rank in trace.ranks.values():
            rank.check_gpu()
            if rank.recording.gpus > 1:
                raise LabError(f"{rank.recording.file}: HTA cannot tell the {rank.recording.gpus} GPUs in it apart.")
        analysis = analysis_of(trace)
        for (number, shown), hta_number in zip(rank_names(name, trace).items(), analysis.t.traces, strict=True):
            compared = TABLES[table](analysis, hta_number, trace, number).rename_axis("HTA's name").reset_index()
            compared.insert(0, "recording", shown)
            differs = ~np.isclose(compared["HTA"], compared["labtrace"], AGREE, 0.01, equal_nan=True)
            ratio = (compared["HTA"] / compared["labtrace"]).map("{:.3g}x".format)
            parts.append(compared.assign(difference=ratio.where(differs, "")))
            if differs.any():
                notes.append(f"{shown}: {reasons(analysis, hta_number, trace, number, table)}")
    joined = pandas.concat(parts, ignore_index=True)
    cells = readable(joined).map(escaped)
    why = pandas.DataFrame({"HTA's name": [f"<i>{escaped(note)}</i>" for note in notes]})
    figure = table_of(pandas.concat([cells, why]).fillna(""), widths=(2, 6, 1.5, 1.5, 1.5))
    return finish(figure, f"HTA's table {table!r} beside labtrace's numbers", traces, joined, notes)


def _temporal(analysis: TraceAnalysis, hta_number: int, trace: Trace, number: int) -> pandas.DataFrame:
    theirs = analysis.get_temporal_breakdown(visualize=False).set_index("rank").loc[hta_number]
    us = trace.temporal().query("rank == @number").set_index("part")["us"]
    names = {"idle": "idle_time(us)", "compute": "compute_time(us)", "non_compute": "non_compute_time(us)"}
    ours = us[[*names, "wall"]].rename(names | {"wall": "kernel_time(us)"})
    return pandas.DataFrame({"HTA": theirs[ours.index].astype(float), "labtrace": ours})


def _idle(analysis: TraceAnalysis, hta_number: int, trace: Trace, number: int) -> pandas.DataFrame:
    theirs = analysis.get_idle_time_breakdown(ranks=[hta_number], visualize=False)[0]
    ours = trace.idle().query("rank == @number and scope != 'device'")
    theirs = theirs.set_index("stream " + theirs["stream"].astype(str) + ", " + theirs["idle_category"])["idle_time"]
    both = {"HTA": theirs, "labtrace": ours.set_index(ours["scope"] + ", " + ours["cause"])["us"]}
    return pandas.DataFrame(both).fillna(0.0).query("HTA > 0 or labtrace > 0")


def _launches(analysis: TraceAnalysis, hta_number: int, trace: Trace, number: int) -> pandas.DataFrame:
    theirs = analysis.get_cuda_kernel_launch_stats(ranks=[hta_number], visualize=False)[hta_number]
    ours = trace.ranks[number].kernels.dropna(subset="delay")
    theirs = theirs.assign(name=theirs["correlation"].map(ours.groupby("correlation")["name"].first()))
    ours = ours.rename(columns={"call_duration": "cpu_duration", "duration": "gpu_duration", "delay": "launch_delay"})
    top = ours.groupby("name")["gpu_duration"].sum().nlargest(TOP).index
    rows = {}
    for name in ["all kernels", *top]:
        both = [one if name == "all kernels" else one[one["name"] == name] for one in (theirs, ours)]
        rows[f"{shortened(name)}, launches"] = [float(len(one)) for one in both]
        for measure in ("cpu_duration", "gpu_duration", "launch_delay"):
            rows[f"{shortened(name)}, mean {measure}"] = [one[measure].mean() for one in both]
    return pandas.DataFrame.from_dict(rows, "index", columns=["HTA", "labtrace"])


TABLES: dict[str, Callable[..., pandas.DataFrame]] = {
    "temporal": _temporal,
    "idle": _idle,
    "launches": _launches,
}


def reasons(analysis: TraceAnalysis, hta_number: int, trace: Trace, number: int, table: str) -> str:
    """The reasons why a table of HTA's differs from labtrace's, as far as the recording shows them."""
    if trace.only_steps:
        return "HTA reads the whole recording, and labtrace's numbers are of the chosen steps"
    rank, names = trace.ranks[number], pandas.Series(analysis.t.symbol_table.get_sym_table())
    read = analysis.t.get_trace(hta_number)
    frame = read.assign(name=read["name"].map(names), category=read["cat"].map(names))
    host, work = frame[frame["stream"] == -1], frame[frame["stream"] != -1]
    extra = work[~work["category"].str.lower().str.removeprefix("gpu_").isin(ON_GPU)]
    launched = rank.kernels["call_begin"]
    fewer_steps = host["name"].str.startswith("ProfilerStep").sum() < len(rank.steps)
    last = (launched >= rank.steps["begin"].max()).sum() if fewer_steps and len(rank.steps) > 1 else 0
    unknown = launched.isna().sum()
    dropped = unknown and len(work) - len(extra) < len(launched)
    calls = rank.operators["name"].iloc[rank.kernels["call"][rank.kernels["call"] >= 0]]
    strange = calls[~calls.isin(frame["name"][analysis.t.symbol_table.get_runtime_launch_events_mask(read)])]
    found = {
        f"HTA counts {len(extra):,} events of {', '.join(extra['category'].unique())}, {extra['dur'].sum():,.0f} µs, "
        "as work of the GPU": len(extra),
        f"HTA leaves out the last step, with {last:,} kernels (include_last_profiler_step=True counts it)": last,
        f"HTA drops {unknown:,} kernels whose launch is not in the trace": dropped,
        "HTA gives a whole gap to host_wait if the call began in it, labtrace the part until the call ended": (
            table == "idle"
        ),
        'a gap before a kernel whose launch is not in the trace is "other" in HTA': table == "idle" and unknown,
        "HTA rounds to whole microseconds, unless HTA_DISABLE_NS_ROUNDING=1 is set before it is loaded": (
            (rank.kernels["begin"] % 1).any() and not (work["ts"] % 1).any()
        ),
        f"HTA does not know {len(strange):,} kernels as launched, those of {', '.join(strange.unique())}": (
            table == "launches" and len(strange)
        ),
    }
    return "; ".join(reason for reason, applies in found.items() if applies) or "the reason is not known"
