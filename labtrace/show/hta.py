"""The view "hta": the tables of Holistic Trace Analysis under their own names, and labtrace's numbers beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError, check_known
from labtrace.show.bars import Traces, analysis_of, by_name, finish, rank_names, readable
from labtrace.show.style import escaped, table_of
from labtrace.trace import Trace

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

AGREE = 0.005  # relative difference that is no difference: HTA rounds percentages
REASONS = (  # why the two may differ
    "HTA leaves out the last step, unless include_last_profiler_step=True is given, and kernels whose launch is not in "
    "the trace. It counts waits on a stream (cuda_sync) as work, rounds to whole microseconds, unless "
    "HTA_DISABLE_NS_ROUNDING=1 is set before it is loaded, and gives a whole gap to host_wait if the next call began "
    "in it. It always reads the whole recording"
)


def hta(traces: Traces, table: str = "temporal") -> go.Figure:
    """A table of HTA's beside labtrace's numbers and, where they differ, the reasons that there may be.

    Args:
        traces: a trace, or traces by name.
        table: "temporal" for `get_temporal_breakdown` or "idle" for `get_idle_time_breakdown`, in microseconds.

    Raises:
        LabError: HTA is not installed, cannot read the recording, or has no such table; or a process used several
            GPUs.
        TraceError: there is no GPU activity.
    """
    check_known("table", table, TABLES)
    parts = []
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
    joined = pandas.concat(parts, ignore_index=True)
    notes = [REASONS] if joined["difference"].any() else []
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


TABLES: dict[str, Callable[..., pandas.DataFrame]] = {
    "temporal": _temporal,
    "idle": _idle,
}
