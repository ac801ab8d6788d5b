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

TYPES = {"compute": "COMPUTATION", "communication": "COMMUNICATION", "memory": "MEMORY"}  # labtrace's kinds and HTA's
TOP = 3  # kernels whose statistics are shown
AGREE = 0.005  # relative difference that is no difference: HTA rounds percentages
ON_GPU = ("kernel", "memcpy", "memset")  # categories of events: "gpu_memcpy", or "Memcpy" in old recordings


def hta(traces: Traces, table: str = "temporal") -> go.Figure:
    """A table of HTA's beside labtrace's numbers and, where they differ, the reasons that the recording shows.

    HTA reads the files itself, and always the whole recording. The view also takes a `TraceAnalysis` that you
    made, with its settings.

    Args:
        traces: a trace, or traces by name.
        table: "temporal" for `get_temporal_breakdown`, "idle" for `get_idle_time_breakdown`, or "kernels" for
            `get_gpu_kernel_breakdown`. Times are in microseconds.

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


def _kernels(analysis: TraceAnalysis, hta_number: int, trace: Trace, number: int) -> pandas.DataFrame:
    types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    kernels = kernels[(kernels["rank"] == hta_number) & (kernels["name"] != "others")].set_index("name")
    names = {"sum (us)": "total_us", "max (us)": "max_us", "min (us)": "min_us", "stddev": "std_us"}
    ours = trace.kernels().query("rank == @number").set_index("name").fillna({"std_us": 0.0})
    top = kernels.nlargest(TOP, "sum (us)").index
    theirs, ours = kernels.loc[top, list(names)].stack(), ours.loc[top, list(names.values())].stack()
    both = pandas.DataFrame({"HTA": theirs, "labtrace": ours.to_numpy()})
    both.index = [f"{shortened(name)}, {column}" for name, column in both.index]
    if len(trace.ranks) > 1:  # HTA adds up the ranks' types
        return both
    types = {"HTA": types.set_index("kernel_type")["sum"], "labtrace": exactly(trace.ranks[number].kernels)}
    sums = pandas.DataFrame(types).fillna(0.0).query("HTA > 0 or labtrace > 0")
    return pandas.concat([sums.rename(index="{}, sum".format), both])


def exactly(kernels: pandas.DataFrame) -> pandas.Series:
    """The time in which kernels of exactly these kinds ran, by HTA's names, in microseconds."""
    begun, ended = kernels.assign(at=kernels["begin"], change=1), kernels.assign(at=kernels["end"], change=-1)
    changes = pandas.concat([begun, ended]).pivot_table("change", "at", "kind", "sum", fill_value=0)
    running = changes.cumsum() > 0
    kinds = [" overlapping ".join(TYPES[kind] for kind in TYPES if row.get(kind)) for _, row in running.iterrows()]
    lasted = running.index.to_series().diff().shift(-1)
    return lasted.groupby(kinds).sum().drop("", errors="ignore")


TABLES: dict[str, Callable[..., pandas.DataFrame]] = {
    "temporal": _temporal,
    "idle": _idle,
    "kernels": _kernels,
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
        "of a kind with many kernels, HTA gives a kernel's sum as its max and min": table == "kernels",
    }
    return "; ".join(reason for reason, applies in found.items() if applies) or "the reason is not known"
