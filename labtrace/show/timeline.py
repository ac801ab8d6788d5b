"""The timeline of host and GPU."""

from __future__ import annotations

import numpy as np
import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError
from labtrace.events.dialects import CALLS
from labtrace.events.rank import Rank
from labtrace.show.bars import Looks, Traces, bars, each_rank, finish
from labtrace.show.style import BY_KIND, HOST, PLAYERS, UNUSED, escaped, shortened, time_unit
from labtrace.tables.processor import stretches

MOST_BARS = 1500
NAMED_BARS = 30  # more have no room for names
# Of each series of bars, in the order of the legend. Players' ranges begin with their names.
COLOURS = {"step": UNUSED, **PLAYERS, "other range": UNUSED, "CUDA call": HOST, **BY_KIND}
LOOKS: Looks = {series: (series, colour, "/" if series == "step" else "") for series, colour in COLOURS.items()}
PROCESSOR: Looks = {  # kinds of work without a GPU
    "convolutions": ("convolutions", "#0072B2", ""),
    "slow convolutions": ("slow convolutions", "#0072B2", "x"),
    "matrix products": ("matrix products", BY_KIND["compute"], ""),
    "attention": ("attention", BY_KIND["compute"], "/"),
    "normalisation": ("normalisation", "#009E73", ""),
    "compiled code": ("compiled code", "#8C7A00", "/"),
    "pointwise and other": ("pointwise and other", "#8C7A00", ""),
    "optimiser": ("optimiser", "#CC79A7", ""),
    "copies": ("copies", BY_KIND["memory"], ""),
    "communication": ("communication", BY_KIND["communication"], ""),
    "data loading": ("data loading", HOST, ""),
    "Python and dispatch": ("Python and dispatch", UNUSED, ""),
    "work outside of PyTorch": ("work outside of PyTorch", UNUSED, "/"),
}
LANES, OPERATORS = ("steps", "ranges", "CUDA calls"), "operators"  # of the host, above the streams


def length_us(traces: Traces) -> float:
    """The time from the first event to the last of the longest recording, or part of a recording."""
    events = [rank.recording.events for rank in each_rank(traces).values()]
    return float(max(one["end"].max() - one["begin"].min() for one in events))


def timeline(traces: Traces, begin_us: float = 0.0, end_us: float | None = None) -> go.Figure:
    """The activities of host and GPU over time: steps, labkit's ranges, CUDA calls, and each stream.

    Several recordings or ranks are drawn below one another. Each begins at its own first event and covers the same
    time, so that equal lengths are equal times. More than 1500 bars are thinned: events of a lane that begin close
    together become one bar, as long as their sum, so that the lane's share of colour stays true. The axis then says so.

    Args:
        traces: a trace, or traces by name.
        begin_us: where to begin, in microseconds since the first event or, for a part made by `Trace.steps`, since the
            first event of its first step.
        end_us: where to end, counted in the same way, or None for the last event.

    Raises:
        LabError: it does not begin before it ends.
        TraceError: the activity of the GPU is missing.
    """
    end_us = length_us(traces) if end_us is None else end_us
    if not begin_us < end_us:
        raise LabError(f"begin_us={begin_us}, end_us={end_us}: the interval has to begin before it ends.")
    ranks = each_rank(traces)
    drawn, sums = [], []
    for name, rank in ranks.items():
        events = events_between(rank, begin_us, end_us)
        lanes = [lane for lane in LANES if (events["lane"] == lane).any()]
        lanes += [OPERATORS] if rank.on_cpu else [f"stream {one}" for one in sorted(rank.kernels["stream"].unique())]
        shown = thin(events, begin_us, end_us, MOST_BARS // len(ranks))
        drawn += [table.assign(panel=name) for table in (pandas.DataFrame({"place": lanes}), shown)]
        totals = events.groupby("lane").agg(events=("name", "size"), total_us=("took", "sum")).reindex(lanes).fillna(0)
        sums.append(totals.astype({"events": int}).rename_axis("lane").reset_index().assign(recording=name))
    table = pandas.concat(sums)[["recording", "lane", "events", "total_us"]]
    unit_us, unit = time_unit(end_us)
    places = pandas.concat(drawn)
    places = places.assign(begin=places["begin_us"] / unit_us, value=places["total_us"] / unit_us)
    if len(places) <= NAMED_BARS:
        places["text"] = places["name"].where(places["series"].isin(list(BY_KIND)), "").map(shortened).map(escaped)
    count, there = int(places["series"].notna().sum()), table["events"].sum()
    thinned = f"; {there:,} events thinned to {count:,} bars" if count < there else ""
    figure = bars(places, {**LOOKS, **PROCESSOR}, f"{unit} since the first event{thinned}")
    figure.update_xaxes(range=(begin_us / unit_us, end_us / unit_us))
    figure.update_traces(
        marker_line_width=0.5 if count < 300 else 0, textposition="inside", insidetextanchor="middle", textangle=0
    )
    figure.update_yaxes(showgrid=False, zeroline=False)
    figure.update_layout(barmode="overlay", uniformtext=dict(minsize=7, mode="hide"))
    whose = "the processor" if all(rank.on_cpu for rank in ranks.values()) else "host and GPU"
    return finish(figure, f"Timeline of {whose}, {begin_us:,.0f} to {end_us:,.0f} µs", traces, table)


def events_between(rank: Rank, begin_us: float, end_us: float) -> pandas.DataFrame:
    """The events between two times, cut at these times: lane, series (for the colour), name, begin, end, took.

    All times are microseconds since the rank's first event.
    """
    calls = rank.operators[rank.operators["category"].isin(CALLS)]
    if rank.on_cpu:
        work = stretches(rank)
        work = work[work["name"] != ""].assign(lane=OPERATORS, series=work["kind"])
    else:
        kernels = rank.kernels
        work = kernels.assign(lane="stream " + kernels["stream"].astype(str), series=kernels["kind"])
    lanes = (
        rank.steps.assign(lane="steps", series="step"),
        rank.ranges.assign(lane="ranges", series=players(rank.ranges["name"])),
        calls.assign(lane="CUDA calls", series="CUDA call"),
        work,
    )
    columns = ["lane", "series", "name", "begin", "end"]
    events = pandas.concat([lane[columns] for lane in lanes if len(lane)], ignore_index=True)
    events[["begin", "end"]] -= rank.recording.events["begin"].min()
    events = events[(events["end"] > begin_us) & (events["begin"] < end_us)]
    begin, end = events["begin"].clip(lower=begin_us), events["end"].clip(upper=end_us)
    return events.assign(begin=begin, end=end, took=end - begin)


def players(ranges: pandas.Series) -> pandas.Series:
    """The player of each range, or "other range"."""
    first = ranges.astype(str).str.split().str[0]
    return first.where(first.isin(list(PLAYERS)), "other range")


def thin(events: pandas.DataFrame, begin_us: float, end_us: float, most: int = MOST_BARS) -> pandas.DataFrame:
    """Bars, at most about `most`: place, series, name, begin_us, total_us (of their events), and events (how many).

    A joined bar has the name and colour of the longest of its events.
    """
    part = np.arange(len(events))
    if len(events) > most:
        in_a_lane = most // events["lane"].nunique()
        part = np.minimum((events["begin"] - begin_us) // ((end_us - begin_us) / in_a_lane), in_a_lane - 1)
    longest_first = events.assign(part=part).sort_values("took", ascending=False, kind="stable")
    bars = longest_first.groupby(["lane", "part"], sort=False).agg(
        series=("series", "first"),
        name=("name", "first"),
        begin_us=("begin", "min"),
        end=("end", "max"),
        total_us=("took", "sum"),
        events=("took", "size"),
    )
    bars["total_us"] = bars["total_us"].clip(upper=bars.pop("end") - bars["begin_us"])  # several threads overlap
    return bars.reset_index().drop(columns="part").rename(columns={"lane": "place"})
