"""The view "hta": the tables of Holistic Trace Analysis under their own names, and labkit's numbers beside them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.errors import check_known
from labkit.show.recordings import Traces, analysis_of, finish, named, rank_names
from labkit.show.style import escaped, shortened, table_of
from labkit.traces.intervals import Union
from labkit.traces.intervals import busy as covered
from labkit.traces.rank import Rank
from labkit.traces.tables import find_gaps

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

TYPES = {"compute": "COMPUTATION", "communication": "COMMUNICATION", "memory": "MEMORY"}  # labkit's kinds and HTA's
TOP = 3  # kernels whose statistics are shown
AGREE = 0.005  # relative difference that is no difference: HTA rounds percentages
ON_GPU = ("kernel", "memcpy", "memset")  # categories of events: "gpu_memcpy", or "Memcpy" in old recordings


def hta(traces: Traces, table: str = "temporal") -> go.Figure:
    """A table of HTA's beside labkit's numbers and, where they differ, the reasons that the recording shows.

    HTA reads the files itself, and always the whole recording. `labkit.show` also takes a `TraceAnalysis` of your own,
    with its settings.

    Args:
        traces: a trace, or traces by name.
        table: "temporal" for `get_temporal_breakdown`, "idle" for `get_idle_time_breakdown`, "kernels" for
            `get_gpu_kernel_breakdown`, "launches" for `get_cuda_kernel_launch_stats` by kernel, or "queue" for
            `get_queue_length_summary`. Times are in microseconds.

    Raises:
        LabkitError: HTA is not installed, cannot read the recording, or has no such table.
        TraceError: there is no GPU activity.
    """
    check_known("table", table, TABLES)
    rows, notes = [], {}
    for name, trace in named(traces).items():
        analysis = analysis_of(trace)
        for (number, shown), hta_number in zip(rank_names(name, trace).items(), analysis.t.traces, strict=True):
            rank = trace.ranks[number]
            compared = TABLES[table](analysis, hta_number, rank).assign(recording=shown)
            differs = ~np.isclose(compared["hta"], compared["labkit"], AGREE, 0.01, equal_nan=True)
            ratio = compared["hta"] / compared["labkit"]
            told = ratio.map(lambda times: f"{times:,.0f}x" if times > 100 else f"{times:.3g}x")
            told = told.where(np.isfinite(ratio), "one has none")
            rows.append(compared.assign(difference=told.where(differs, "")))
            if trace.only_steps:
                notes[shown] = "HTA reads the whole recording, and labkit's numbers are those of the chosen steps"
            elif differs.any():
                notes[shown] = "; ".join(reasons(analysis, hta_number, rank, table)) or "the reason is not known"
    joined = pandas.concat(rows, ignore_index=True)[["recording", "what", "hta", "labkit", "difference"]]
    parts = []
    for name, cells in joined.groupby("recording", sort=False):
        heading = [f"<b>{escaped(name)}</b>"] if joined["recording"].nunique() > 1 else []
        why = [f"<i>{escaped(notes[name])}</i>"] if name in notes else []
        cells = cells.drop(columns="recording").assign(what=cells["what"].map(escaped))
        parts += [pandas.DataFrame({"what": heading}), cells, pandas.DataFrame({"what": why})]
    cells = pandas.concat(parts).map(
        lambda cell: f"{cell:,.2f}" if isinstance(cell, float) else cell, na_action="ignore"
    )
    cells = cells.fillna("").set_axis(["HTA's name", "HTA", "labkit", "difference"], axis=1)
    figure = table_of(cells, widths=(6, 1.5, 1.5, 1.5))
    return finish(figure, f"HTA's table {table!r} beside labkit's numbers", traces, joined, notes)


def _temporal(analysis: TraceAnalysis, number: int, rank: Rank) -> pandas.DataFrame:
    table = analysis.get_temporal_breakdown(visualize=False).set_index("rank").loc[number]
    wall, busy = rank.stop - rank.start, float(np.sum(rank.busy.end - rank.busy.begin))
    kernels = rank.kernels[rank.kernels["kind"] == "compute"]
    compute = covered(kernels["begin"], kernels["end"])
    times = {"idle_time": wall - busy, "compute_time": compute, "non_compute_time": busy - compute}
    ours = {f"{name}(us)": us for name, us in times.items()} | {"kernel_time(us)": wall}
    ours |= {f"{name}_pctg": 100 * us / (wall or np.nan) for name, us in times.items()}
    return pandas.DataFrame({"what": list(ours), "hta": [table[name] for name in ours], "labkit": ours.values()})


def _idle(analysis: TraceAnalysis, number: int, rank: Rank) -> pandas.DataFrame:
    table = analysis.get_idle_time_breakdown(ranks=[number], visualize=False)[0]
    theirs = table.set_index(["stream", "idle_category"])["idle_time"]
    streams = {stream: find_gaps(kernels) for stream, kernels in rank.kernels.groupby("stream")}
    ours = pandas.concat({stream: gaps.groupby("cause")["us"].sum() for stream, gaps in streams.items()})
    both = pandas.DataFrame({"hta": theirs, "labkit": ours}).fillna(0.0)
    names = [f"stream {stream}: {cause}, idle_time" for stream, cause in both.index]
    return both.assign(what=names)


def _kernels(analysis: TraceAnalysis, number: int, rank: Rank) -> pandas.DataFrame:
    types, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    if len(analysis.t.traces) == 1:  # HTA adds up the ranks
        ours = {" overlapping ".join(TYPES[kind] for kind in kinds): us for kinds, us in exactly(rank).items()}
        both = pandas.DataFrame({"hta": types.set_index("kernel_type")["sum"], "labkit": pandas.Series(ours)})
        both = both.astype(float).fillna(0.0).query("hta > 0 or labkit > 0")
        rows = both.assign(what=both.index + ", sum")
    else:
        rows = pandas.DataFrame()
    kernels = kernels[(kernels["rank"] == number) & (kernels["name"] != "others")].nlargest(TOP, "sum (us)")
    durations = rank.kernels.groupby("name")["duration"].agg(["sum", "max", "min", "std", "mean"]).fillna({"std": 0})
    columns = {"sum (us)": "sum", "max (us)": "max", "min (us)": "min", "stddev": "std", "mean (us)": "mean"}
    top = [
        {"what": f"{shortened(name)}, {column}", "hta": row[column], "labkit": durations.at[name, statistic]}
        for name, row in kernels.set_index("name").iterrows()
        for column, statistic in columns.items()
    ]
    return pandas.concat([rows, pandas.DataFrame(top)], ignore_index=True)


def _launches(analysis: TraceAnalysis, number: int, rank: Rank) -> pandas.DataFrame:
    theirs = analysis.get_cuda_kernel_launch_stats(ranks=[number], visualize=False)[number]
    frame, names = analysis.t.get_trace(number), analysis.t.symbol_table.get_sym_table()
    on_gpu = frame[frame["stream"] != -1].drop_duplicates("correlation").set_index("correlation")["name"]
    theirs = theirs.assign(name=theirs["correlation"].map(on_gpu).map(names.__getitem__))
    ours = rank.kernels.dropna(subset="delay")
    ours = ours.rename(columns={"call_duration": "cpu_duration", "duration": "gpu_duration", "delay": "launch_delay"})
    rows = []
    top = ours.groupby("name")["gpu_duration"].sum().nlargest(TOP).index
    for name in [None, *top]:
        both = {"hta": theirs, "labkit": ours}
        if name is not None:
            both = {column: table[table["name"] == name] for column, table in both.items()}
        shown = "all kernels" if name is None else shortened(name)
        rows.append({"what": f"{shown}, launches", **{column: len(table) for column, table in both.items()}})
        for measure in ("cpu_duration", "gpu_duration", "launch_delay"):
            means = {column: table[measure].mean() for column, table in both.items()}
            rows.append({"what": f"{shown}, mean {measure}", **means})
    return pandas.DataFrame(rows)


def _queue(analysis: TraceAnalysis, number: int, rank: Rank) -> pandas.DataFrame:
    theirs = analysis.get_queue_length_summary(ranks=[number])["queue_length"].droplevel("rank")
    rows = []
    for stream, kernels in rank.kernels.dropna(subset="call_begin").groupby("stream"):
        launched, began = kernels["call_begin"].to_numpy(), kernels["begin"].to_numpy()
        instants = np.concatenate([launched, began])
        changes = np.repeat([1, -1], len(launched))[np.lexsort((np.repeat([1, 0], len(launched)), instants))]
        waiting, lasted = np.cumsum(changes)[:-1], np.diff(np.sort(instants))
        mean = (waiting * lasted).sum() / (lasted.sum() or np.nan)
        of_stream = theirs.loc[stream] if stream in theirs.index else {"mean": np.nan, "max": np.nan}
        rows.append({"what": f"stream {stream}, mean queue_length", "hta": of_stream["mean"], "labkit": mean})
        rows.append({"what": f"stream {stream}, max queue_length", "hta": of_stream["max"], "labkit": waiting.max()})
    return pandas.DataFrame(rows)


TABLES: dict[str, Callable[..., pandas.DataFrame]] = {
    "temporal": _temporal,
    "idle": _idle,
    "kernels": _kernels,
    "launches": _launches,
    "queue": _queue,
}


def exactly(rank: Rank) -> dict[tuple[str, ...], float]:
    """The time in which kernels of exactly these kinds ran, by the kinds in HTA's order, in microseconds."""
    unions = {}
    for kind in TYPES:
        kernels = rank.kernels[rank.kernels["kind"] == kind]
        unions[kind] = Union(kernels["begin"], kernels["end"])
    instants = np.unique(np.concatenate([[*union.begin, *union.end] for union in unions.values()]))
    begin, end = instants[:-1], instants[1:]
    middle = (begin + end) / 2
    under_way = {kind: union.covered(begin, middle) > 0 for kind, union in unions.items()}
    times = {}
    for size in range(1, len(TYPES) + 1):
        for kinds in combinations(TYPES, size):
            here = np.all([under_way[kind] == (kind in kinds) for kind in TYPES], axis=0)
            times[kinds] = float((end - begin)[here].sum())
    return times


def reasons(analysis: TraceAnalysis, number: int, rank: Rank, table: str) -> list[str]:
    """The reasons for which a table of HTA's differs from labkit's, as far as the recording shows them.

    Args:
        analysis: HTA's, whose events are counted.
        number: the rank's, in the analysis.
        rank: as labkit reads it.
        table: a name of `TABLES`.
    """
    frame, names = analysis.t.get_trace(number), pandas.Series(analysis.t.symbol_table.get_sym_table())
    work = frame[frame["stream"] != -1]
    category = work["cat"].map(names)
    found = []
    extra = ~category.str.lower().str.removeprefix("gpu_").isin(ON_GPU)
    for kind, events in work[extra].groupby(category[extra]):
        what = "synchronisation events" if kind == "cuda_sync" else f"events of the host ({kind})"
        found.append(f"HTA counts {len(events):,} {what}, {events['dur'].sum():,.0f} µs, as work of the GPU")
    kernels = rank.kernels
    if len(rank.steps) > 1 and (~extra).sum() < len(kernels):
        last = kernels["call_begin"] >= rank.steps["begin"].max()
        unknown = kernels["call_begin"].isna()
        steps = frame["name"].map(names).str.startswith("ProfilerStep") & (frame["stream"] == -1)
        if last.any() and steps.sum() < len(rank.steps):
            found.append(
                f"HTA leaves out the last step, with {last.sum():,} kernels (include_last_profiler_step=True counts it)"
            )
        if unknown.any():
            found.append(f"HTA drops {unknown.sum():,} kernels whose launch is not in the trace")
    elif table == "idle" and kernels["call_begin"].isna().any():
        found.append('a gap before a kernel whose launch is not in the trace is "other" in HTA, "unknown" in labkit')
    exact = kernels["begin"].to_numpy() % 1
    if exact.any() and not (work["ts"].to_numpy() % 1).any():
        found.append("HTA rounds to whole microseconds, unless HTA_DISABLE_NS_ROUNDING=1 is set before it is loaded")
    if table == "kernels":
        found.append(
            "of a kind with many kernels, HTA gives the sum of a kernel as its max, min and mean, with a stddev of 0"
        )
    if table in ("launches", "queue"):
        known = analysis.t.symbol_table.get_runtime_launch_events_mask(frame)
        hta_calls = set(frame.loc[known, "name"].map(names))
        call = rank.operators["name"].to_numpy()[kernels["call"][kernels["call"] >= 0]]
        others = pandas.Series(call)[~pandas.Series(call).isin(hta_calls)]
        if len(others):
            calls = ", ".join(others.unique())
            found.append(f"HTA does not know {len(others):,} kernels as launched, those of {calls}")
    if table == "queue":
        found.append("HTA's mean counts every change of the queue alike, labkit's is a mean over time")
    return found
