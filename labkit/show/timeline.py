"""What host and GPU did when: one recording's timeline, or several below one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.errors import check_known
from labkit.show.figures import HOST, PLAYERS, UNUSED
from labkit.show.recordings import KINDS, Traces, add_bars, escaped, finish, look, named, panels, rank_names, shortened
from labkit.traces.rank import CALLS, Rank
from labkit.traces.trace import Trace

MOST_BARS = 1500
# What a bar is, in the order of the legend: its colour and hatching. Players' ranges begin with their names.
RANGES = {**{player: (colour,) for player, colour in PLAYERS.items()}, "other range": (UNUSED,)}
LOOKS = {"step": (UNUSED, "/"), **RANGES, "CUDA call": (HOST,), **{kind: (colour,) for kind, colour in KINDS.items()}}
LANES = ("steps", "ranges", "CUDA calls")  # of the host, above the streams


def timeline_figure(traces: Traces, begin_us: float, end_us: float, rank: int | None = None) -> go.Figure:
    """What host and GPU did when: steps, labkit's ranges, calls of CUDA, and each stream.

    Several recordings are drawn below one another, each from its own first event on and for as long, so that equal
    lengths are equal times. What would be more than 1500 bars is thinned: events of one lane that begin close together
    become one bar, as long as they took together, so that a lane's share of colour stays true. The title then says so.

    Args:
        traces: a trace, or traces by name.
        begin_us: where to begin, in microseconds since the first event: of the first step, if a trace is a part made
            by `Trace.steps`.
        end_us: where to end, likewise. The axis has the times since the first event of the whole recording.
        rank: which, of recordings of several ranks; None for the first of each. One of a single rank is drawn anyhow.

    Raises:
        LabkitError: a recording of several ranks does not have this one.
        TraceError: there is no GPU activity.
    """
    chosen = dict(_chosen_rank(name, trace, rank) for name, trace in named(traces).items())
    seen = {name: _window(rank, begin_us, end_us) for name, rank in chosen.items()}
    events = {name: events_between(chosen[name], *window) for name, window in seen.items()}
    lanes = {name: _lanes(chosen[name], events[name]) for name in chosen}
    most = MOST_BARS // len(chosen)
    bars = {name: thin(events[name], *window, most) for name, window in seen.items()}
    figure = panels({name: 45 * len(of_one) for name, of_one in lanes.items()}, shared_xaxes=False)
    in_legend: set[str] = set()
    for number, (name, window) in enumerate(seen.items(), start=1):
        for what in (what for what in LOOKS if (bars[name]["what"] == what).any()):
            rows = bars[name][bars[name]["what"] == what]
            shown = dict(name=what, legendgroup=what, showlegend=what not in in_legend, row=number, col=1)
            places = rows["lane"].map(lanes[name].index)
            hover = map(_hover, rows.itertuples(index=False))
            add_bars(figure, places, rows["took"], hover, base=list(rows["begin"]), marker=look(*LOOKS[what]), **shown)
            in_legend.add(what)
        ticks = dict(tickvals=list(range(len(lanes[name]))), ticktext=lanes[name])
        figure.update_yaxes(range=[len(lanes[name]) - 0.5, -0.5], **ticks, row=number, col=1)
        figure.update_xaxes(range=window, row=number, col=1)
    drawn, there = sum(map(len, bars.values())), sum(map(len, events.values()))
    figure.update_traces(width=0.7, marker_line_width=0.5 if drawn < 300 else 0)
    figure.update_yaxes(showgrid=False, zeroline=False).update_xaxes(tickformat=",")
    figure.update_xaxes(title="microseconds since the first event", row=len(chosen), col=1)
    figure.update_layout(barmode="overlay")
    thinned = f", {there:,} events thinned to {drawn:,} bars" if drawn < there else ""
    begin, end = next(iter(seen.values()))
    span = f"{begin:,.0f} to {end:,.0f} µs" if len(seen) == 1 else f"{end - begin:,.0f} µs of each"
    words = [
        (f"{name}, from {window[0]:,.1f} to {window[1]:,.1f} µs: " if len(seen) > 1 else "")
        + "; ".join(_in_words(events[name], lanes[name]))
        for name, window in seen.items()
    ]
    return finish(figure, f"Timeline of host and GPU, {span}{thinned}", traces, words, reverse=False)


def _chosen_rank(name: str, trace: Trace, rank: int | None) -> tuple[str, Rank]:
    """The rank to draw and what figures call it."""
    if rank is None or len(trace.ranks) == 1:
        rank = next(iter(trace.ranks))
    check_known("rank", str(rank), map(str, trace.ranks))
    return rank_names(name, trace)[rank], trace.ranks[rank]


def _window(rank: Rank, begin_us: float, end_us: float) -> tuple[float, float]:
    """From the first event that `rank` holds to the first of the recording."""
    first = float(rank.recording.events["begin"].min())
    return first + begin_us, first + end_us


def events_between(rank: Rank, begin_us: float, end_us: float) -> pandas.DataFrame:
    """The events that are seen between two times, cut there: lane, what (its colour), name, begin, end."""
    calls = rank.operators[rank.operators["category"].isin(CALLS)]
    players = rank.ranges["name"].str.partition(" ")[0] if len(rank.ranges) else rank.ranges["name"]
    kernels = rank.kernels
    lanes = (
        rank.steps.assign(lane="steps", what="step"),
        rank.ranges.assign(lane="ranges", what=players.where(players.isin(list(PLAYERS)), "other range")),
        calls.assign(lane="CUDA calls", what="CUDA call"),
        kernels.assign(lane="stream " + kernels["stream"].astype(str), what=kernels["kind"]),
    )
    columns = ["lane", "what", "name", "begin", "end"]
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
        what=("what", "first"),
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


def _in_words(events: pandas.DataFrame, lanes: list[str]) -> list[str]:
    """For each lane how many events it has, and how long they took."""
    words = []
    for lane in lanes:
        ours = events[events["lane"] == lane]
        took = (ours["end"] - ours["begin"]).sum()
        words.append(f"{lane}: {len(ours):,} event{'s' * (len(ours) != 1)}, {took:,.1f} µs in all")
    return words
