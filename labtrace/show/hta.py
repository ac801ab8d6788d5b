"""The view "hta": the tables of Holistic Trace Analysis under their own names, and labtrace's numbers beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError, check_known
from labtrace.events.intervals import levels
from labtrace.events.rank import Rank
from labtrace.lazy import needs
from labtrace.show.bars import ANALYSES, Traces, by_name, finish, rank_names, readable
from labtrace.show.style import table_of
from labtrace.tables import gpu
from labtrace.trace import Trace

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

AGREE = 0.005  # relative difference that is no difference: HTA rounds percentages
PARTS = {"idle": "idle_time(us)", "compute": "compute_time(us)", "non_compute": "non_compute_time(us)"}
TYPES = {"COMPUTATION": "compute", "COMMUNICATION": "communication", "MEMORY": "memory"}  # HTA's names, in its order
# The cutoffs of the course paper, which are HTA's own: shares of the launches, in percent, by HTA's columns.
SHARES = ("launch_delay > 100", "cpu_duration > 50", "gpu_duration < cpu_duration <= 50")
WAYS_OUT = "Perhaps HTA_DISABLE_NS_ROUNDING=1, set before HTA is loaded, helps, or pip install 'pandas<3'."
Rows = Iterator[tuple[object, str, float, float]]  # rank, HTA's name, HTA's number and labtrace's


def hta(traces: Traces, table: str = "temporal") -> go.Figure:
    """A table of HTA's beside labtrace's numbers and, where they differ, the reasons that this recording gives.

    Args:
        traces: a trace or HTA's own `TraceAnalysis`, or several by name.
        table: one of these.

            | table | HTA's function | numbers |
            |---|---|---|
            | "temporal", "idle" | `get_temporal_breakdown`, `get_idle_time_breakdown` | microseconds |
            | "kernel types", "kernels" | `get_gpu_kernel_breakdown` | microseconds |
            | "launches" | `get_cuda_kernel_launch_stats` | launches, and percent of them |
            | "queue" | `get_queue_length_time_series`, and its summary | kernels that wait |
            | "overlap" | `get_comm_comp_overlap` | percent of the communication, NaN without any |

    Raises:
        LabError: HTA is not installed, cannot read the recording, or fails in this table; or there is no such table,
            or a process used several GPUs.
        TraceError: there is no GPU activity.
    """
    check_known("table", table, TABLES)
    parts, reasons = [], []
    for name, trace in by_name(traces).items():
        for rank in trace.ranks.values():
            rank.check_gpu()
            if rank.recording.gpus > 1:
                raise LabError(f"{rank.recording.file}: HTA cannot tell the {rank.recording.gpus} GPUs in it apart.")
        try:
            analysis = analysis_of(trace)
            rows = [*TABLES[table](analysis, trace.ranks)]
        except Exception as error:  # HTA raises nearly anything
            what = f"HTA fails in the table {table!r} of {name} ({type(error).__name__}: {str(error)[:200]})"
            raise LabError(needs(error, "this view") or f"{what}. {WAYS_OUT}") from error
        numbers = {"HTA": float, "labtrace": float}
        compared = pandas.DataFrame(rows, columns=["recording", "HTA's name", *numbers]).astype(numbers)
        compared["recording"] = compared["recording"].map(rank_names(name, trace)).fillna(f"{name}, all ranks")
        differs = ~np.isclose(compared["HTA"], compared["labtrace"], AGREE, 0.01, equal_nan=True)
        ratio = (compared["HTA"] / compared["labtrace"]).map("{:.3g}x".format)
        parts.append(compared.assign(difference=ratio.where(differs, "")))
        if differs.any():
            reasons += [REASONS.get(table, ""), *_reasons(analysis, trace)]
    joined = pandas.concat(parts, ignore_index=True)
    notes = [". ".join(filter(None, dict.fromkeys(reasons)))] if reasons else []
    shown = pandas.concat([readable(joined), pandas.DataFrame({"HTA's name": notes})]).fillna("")
    figure = table_of(shown, widths=(2, 6, 1.5, 1.5, 1.5))
    return finish(figure, f"HTA's table {table!r} beside labtrace's numbers", traces, joined, notes)


def analysis_of(trace: Trace) -> TraceAnalysis:
    """HTA's analysis of a trace: the one that the trace came with, or a new one with HTA's defaults."""
    if trace not in ANALYSES:
        logging.getLogger("hta").setLevel(logging.ERROR)
        print("HTA is reading the trace ...", flush=True)
        from hta.trace_analysis import TraceAnalysis

        files = {number: str(rank.recording.file) for number, rank in trace.ranks.items()}
        ANALYSES[trace] = TraceAnalysis(trace_files=files, trace_dir="")
    return ANALYSES[trace]


def _reasons(analysis: TraceAnalysis, trace: Trace) -> Iterator[str]:
    """Why HTA's numbers of any table may differ, as far as this recording and these settings give reason."""
    for number, rank in trace.ranks.items():
        events, kernels = analysis.t.traces[number], rank.kernels
        on_gpu, last = events[events["stream"] != -1], kernels["step"].max() if len(rank.steps) > 1 else np.nan
        if trace.only_steps:
            yield "HTA always reads the whole recording"
        elif (on_gpu["iteration"] == last).sum() < (kernels["step"] == last).sum():
            yield "HTA leaves out the last step, unless include_last_profiler_step=True is given"
        if (events["ts"] % 1 == 0).all() and (kernels["begin"] % 1 != 0).any():
            yield "HTA rounds to whole microseconds, unless HTA_DISABLE_NS_ROUNDING=1 is set before it is loaded"
        if (on_gpu["cat"] == analysis.t.symbol_table.get_sym_id_map().get("cuda_sync", -1)).any():
            yield "HTA counts waits on a stream (cuda_sync) as work"
        if kernels["call_begin"].isna().any():
            yield "HTA leaves out kernels whose launch is not in the trace"


def _temporal(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    theirs = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    for number, rank in ranks.items():
        us = gpu.temporal(rank).set_index("part")["us"]
        for part, name in (PARTS | {"wall": "kernel_time(us)"}).items():
            yield number, name, theirs.loc[number, name], us[part]


def _idle(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    for number, rank in ranks.items():
        theirs = analysis.get_idle_time_breakdown(ranks=[number], visualize=False)[0]
        theirs = theirs.set_index("stream " + theirs["stream"].astype(str) + ", " + theirs["idle_category"])
        ours = gpu.idle(rank).query("scope != 'device'")
        both = {"HTA": theirs["idle_time"], "labtrace": ours.set_index(ours["scope"] + ", " + ours["cause"])["us"]}
        for name, hta_us, us in pandas.DataFrame(both).fillna(0.0).query("HTA > 0 or labtrace > 0").itertuples():
            yield number, name, hta_us, us


def _kernel_types(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    theirs = analysis.get_gpu_kernel_breakdown(visualize=False)[0].set_index("kernel_type")["sum"]
    ours = sum(gpu.temporal(rank).set_index("part")["us"] for rank in ranks.values())
    for kind, part in TYPES.items():
        yield "all", f"{kind}, overlapping others or not", theirs[theirs.index.str.contains(kind)].sum(), ours[part]


def _kernels(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    table = analysis.get_gpu_kernel_breakdown(visualize=False)[1]
    for number, rank in ranks.items():
        ours = gpu.kernels_by_name(rank).set_index("name")
        for kind, theirs in table[table["rank"] == number].groupby("kernel_type", sort=False):
            us = ours["total_us"].reindex(theirs["name"])
            us["others"] = ours.loc[ours["kind"] == TYPES[kind], "total_us"].sum() - us.sum()
            for name, hta_us in theirs.set_index("name")["sum (us)"].sort_values(ascending=False).items():
                yield number, f"others, {kind}" if name == "others" else str(name), hta_us, us[name]


def _launches(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    for number, theirs in analysis.get_cuda_kernel_launch_stats(ranks=[*ranks], visualize=False).items():
        names = {"call_duration": "cpu_duration", "duration": "gpu_duration", "delay": "launch_delay"}
        ours = ranks[number].kernels.dropna(subset="delay").rename(columns=names)
        yield number, "launches with a kernel", len(theirs), len(ours)
        for name in SHARES:
            yield number, f"{name}, percent", 100 * theirs.eval(name).mean(), 100 * ours.eval(name).mean()


def _queue(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    series = analysis.get_queue_length_time_series(ranks=[*ranks])
    summary = analysis.get_queue_length_summary_from_time_series(series)["queue_length"]
    for (number, stream), theirs in summary.iterrows():
        kernels = ranks[number].kernels.query("stream == @stream").dropna(subset="call_begin")
        times, waiting = levels(np.minimum(kernels["call_begin"], kernels["begin"]), kernels["begin"].to_numpy())
        yield number, f"stream {stream}, mean", theirs["mean"], np.average(waiting[:-1], weights=np.diff(times))
        yield number, f"stream {stream}, max", theirs["max"], waiting.max()


def _overlap(analysis: TraceAnalysis, ranks: Mapping[int, Rank]) -> Rows:
    theirs = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    for number, rank in ranks.items():
        us = gpu.temporal(rank).set_index("part")["us"]
        together = 100 * us["compute_and_communication"] / (us["communication"] or np.nan)
        yield number, "comp_comm_overlap_pctg", theirs[number], together


TABLES: dict[str, Callable[[TraceAnalysis, Mapping[int, Rank]], Rows]] = {
    "temporal": _temporal,
    "idle": _idle,
    "kernel types": _kernel_types,
    "kernels": _kernels,
    "launches": _launches,
    "queue": _queue,
    "overlap": _overlap,
}
REASONS = {  # of single tables
    "kernel types": "In this table HTA cuts each interval to whole microseconds, whatever its settings",
    "idle": "HTA gives a whole gap to host_wait if the next call began in it",
    "launches": "HTA does not know launches by cuLaunchKernel, nor those of a CUDA graph",
    "queue": "HTA's mean is over the changes of the queue, labtrace's over time, with the kernels of a CUDA graph",
}
