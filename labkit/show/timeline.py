"""The activities of host and GPU over time: the timeline of one recording, or several timelines below one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.errors import check_known
from labkit.show.recordings import Traces, finish, named, rank_names
from labkit.show.style import HOST, KINDS, PLAYERS, UNUSED, escaped, look, panels, shortened
from labkit.traces.rank import CALLS, Rank
from labkit.traces.trace import Trace

MOST_BARS = 1500
# Each series of bars, in the order of the legend: its colour and hatching. Players' ranges begin with their names.
RANGES = {**{player: (colour,) for player, colour in PLAYERS.items()}, "other range": (UNUSED,)}
LOOKS = {"step": (UNUSED, "/"), **RANGES, "CUDA call": (HOST,), **{kind: (colour,) for kind, colour in KINDS.items()}}
LANES = ("steps", "ranges", "CUDA calls")  # of the host, above the streams


def timeline(traces: Traces, begin_us: float, end_us: float, rank: int | None = None) -> go.Figure:
    """The activities of host and GPU over time: steps, labkit's ranges, CUDA calls, and each stream.

    Several recordings are drawn below one another. Each begins at its own first event and covers the same time, so
    that equal lengths are equal times. More than 1500 bars are thinned: events of a lane that begin close together
    become one bar, as long as their sum, so that the lane's share of colour stays true. The title then says so.

    Args:
        traces: a trace, or traces by name.
        begin_us: where to begin, in microseconds since the first event; for a part made by `Trace.steps`, since the
            first event of its first step.
        end_us: where to end, counted in the same way. The axis has the times since the recording's first event.
        rank: the rank to draw, of recordings of several ranks; None for the first one of each. Recordings of a single
            rank are always drawn.

    Raises:
        LabkitError: a recording of several ranks does not have this one.
        TraceError: there is no GPU activity.
    """
    chosen = dict(_chosen_rank(name, trace, rank) for name, trace in named(traces).items())
    seen = {name: _window(of_name, begin_us, end_us) for name, of_name in chosen.items()}
    events = {name: events_between(chosen[name], *window) for name, window in seen.items()}
    lanes = {name: _lanes(chosen[name], events[name]) for name in chosen}
    bars = {name: thin(events[name], *window, MOST_BARS // len(chosen)) for name, window in seen.items()}
    drawn, there = sum(map(len, bars.values())), sum(map(len, events.values()))
    figure = panels({name: 45 * len(of_one) for name, of_one in lanes.items()}, shared=False)
    in_legend: set[str] = set()
    for number, (name, window) in enumerate(seen.items(), start=1):
        for series, looks in LOOKS.items():
            rows = bars[name][bars[name]["series"] == series]
            if rows.empty:
                continue
            figure.add_bar(
                **dict(y=list(rows["lane"].map(lanes[name].index)), base=list(rows["begin"]), x=list(rows["took"])),
                **dict(hovertext=[_hover(bar) for bar in rows.itertuples()], hoverinfo="text", marker=look(*looks)),
                **dict(name=series, legendgroup=series, showlegend=series not in in_legend, width=0.7),
                **dict(orientation="h", row=number, col=1),
            )
            in_legend.add(series)
        ticks = dict(tickvals=list(range(len(lanes[name]))), ticktext=lanes[name])
        figure.update_yaxes(range=[len(lanes[name]) - 0.5, -0.5], **ticks, row=number, col=1)
        figure.update_xaxes(range=window, row=number, col=1)
    figure.update_traces(marker_line_width=0.5 if drawn < 300 else 0)
    figure.update_yaxes(showgrid=False, zeroline=False).update_xaxes(tickformat=",")
    figure.update_xaxes(title="microseconds since the first event", row=len(chosen), col=1)
    figure.update_layout(barmode="overlay")
    thinned = f", {there:,} events thinned to {drawn:,} bars" if drawn < there else ""
    begin, end = next(iter(seen.values()))
    span = f"{begin:,.0f} to {end:,.0f} µs" if len(seen) == 1 else f"{end - begin:,.0f} µs of each"
    told = pandas.concat([_totals(name, *seen[name], events[name], lanes[name]) for name in chosen])
    return finish(figure, f"Timeline of host and GPU, {span}{thinned}", traces, told)


def _chosen_rank(name: str, trace: Trace, rank: int | None) -> tuple[str, Rank]:
    """The rank to draw, under its name in figures."""
    if rank is None or len(trace.ranks) == 1:
        rank = next(iter(trace.ranks))
    check_known("rank", str(rank), map(str, trace.ranks))
    return rank_names(name, trace)[rank], trace.ranks[rank]


def _window(rank: Rank, begin_us: float, end_us: float) -> tuple[float, float]:
    """These times, counted from the first event of `rank`, as times since the recording's first event."""
    first = float(rank.recording.events["begin"].min())
    return first + begin_us, first + end_us


def events_between(rank: Rank, begin_us: float, end_us: float) -> pandas.DataFrame:
    """The events between two times, cut at these times: lane, series (for the colour), name, begin, end."""
    calls = rank.operators[rank.operators["category"].isin(CALLS)]
    players = rank.ranges["name"].str.partition(" ")[0] if len(rank.ranges) else rank.ranges["name"]
    kernels = rank.kernels
    lanes = (
        rank.steps.assign(lane="steps", series="step"),
        rank.ranges.assign(lane="ranges", series=players.where(players.isin(list(PLAYERS)), "other range")),
        calls.assign(lane="CUDA calls", series="CUDA call"),
        kernels.assign(lane="stream " + kernels["stream"].astype(str), series=kernels["kind"]),
    )
    columns = ["lane", "series", "name", "begin", "end"]
    events = pandas.concat([lane[columns] for lane in lanes if len(lane)], ignore_index=True)
    events = events[(events["end"] > begin_us) & (events["begin"] < end_us)]
    return events.assign(begin=events["begin"].clip(lower=begin_us), end=events["end"].clip(upper=end_us))


def thin(events: pandas.DataFrame, begin_us: float, end_us: float, most: int = MOST_BARS) -> pandas.DataFrame:
    """Bars, at most about `most`: events and, in `took`, their durations; in `events`, how many were joined.

    A joined bar has the name and colour of the longest of its events.
    """
    events = events.assign(took=events["end"] - events["begin"], events=1)
    if len(events) <= most:
        return events
    lanes = events["lane"].nunique()
    within = (end_us - begin_us) * lanes / most
    place = np.minimum((events["begin"] - begin_us) // within, most // lanes - 1)
    longest_first = events.assign(place=place).sort_values("took", ascending=False, kind="stable")
    bars = longest_first.groupby(["lane", "place"], sort=False).agg(
        series=("series", "first"),
        name=("name", "first"),
        begin=("begin", "min"),
        end=("end", "max"),
        took=("took", "sum"),
        events=("events", "sum"),
    )
    bars["took"] = bars["took"].clip(upper=bars["end"] - bars["begin"])  # calls of several threads overlap
    return bars.reset_index()


def _lanes(rank: Rank, events: pandas.DataFrame) -> list[str]:
    """Those of the host in which something happened, and all streams."""
    streams = [f"stream {stream}" for stream in sorted(rank.kernels["stream"].unique())]
    return [*(lane for lane in LANES if (events["lane"] == lane).any()), *streams]


def _hover(bar: Any) -> str:
    joined = f"; {bar.events} events" if bar.events > 1 else ""
    return f"{escaped(shortened(bar.name, 90))}<br>{bar.took:,.1f} µs, from {bar.begin:,.1f} µs on{joined}"


def _totals(name: str, begin: float, end: float, events: pandas.DataFrame, lanes: list[str]) -> pandas.DataFrame:
    """For each lane of a recording the number of its events, and the sum of their durations."""
    took = (events["end"] - events["begin"]).groupby(events["lane"]).agg(["size", "sum"]).reindex(lanes, fill_value=0)
    columns = {"recording": name, "from_us": begin, "to_us": end, "lane": lanes}
    return pandas.DataFrame({**columns, "events": took["size"].astype(int), "total_us": took["sum"].astype(float)})
