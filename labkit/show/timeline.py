"""The views of a trace that have to do with time: the timeline of host and GPU, and the launch queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show.recordings import Looks, Traces, bars, each_rank, finish, joined
from labkit.show.style import FAINT, HOST, KINDS, PLAYERS, UNUSED, WALL, escaped, panels, shortened, time_unit
from labkit.trace import Trace
from labkit.traces.rank import CALLS, Rank

MOST_BARS = 1500
QUEUE_POINTS = 2000
NAMED_BARS = 30  # more have no room for names
# Of each series of bars, in the order of the legend. Players' ranges begin with their names.
COLOURS = {"step": UNUSED, **PLAYERS, "other range": UNUSED, "CUDA call": HOST, **KINDS}
LOOKS: Looks = {series: (series, colour, "/" if series == "step" else "") for series, colour in COLOURS.items()}
LANES = ("steps", "ranges", "CUDA calls")  # of the host, above the streams


def timeline(traces: Traces, begin_us: float, end_us: float) -> go.Figure:
    """The activities of host and GPU over time: steps, labkit's ranges, CUDA calls, and each stream.

    Several recordings or ranks are drawn below one another. Each begins at its own first event and covers the same
    time, so that equal lengths are equal times. More than 1500 bars are thinned: events of a lane that begin close
    together become one bar, as long as their sum, so that the lane's share of colour stays true. The title then says
    so.

    Args:
        traces: a trace, or traces by name.
        begin_us: where to begin, in microseconds since the first event or, for a part made by `Trace.steps`, since the
            first event of its first step.
        end_us: where to end, counted in the same way. The axis has the times since the recording's first event.

    Raises:
        LabkitError: it does not begin before it ends.
        TraceError: there is no GPU activity.
    """
    if not begin_us < end_us:
        raise LabkitError(f"begin_us={begin_us}, end_us={end_us}: the interval has to begin before it ends.")
    ranks = each_rank(traces)
    windows, drawn, told = [], [], []
    for name, rank in ranks.items():
        first = float(rank.recording.events["begin"].min())
        windows.append((first + begin_us, first + end_us))
        events = events_between(rank, *windows[-1])
        lanes = _lanes(rank, events)
        shown = thin(events, *windows[-1], MOST_BARS // len(ranks)).rename(columns={"lane": "place", "took": "value"})
        hover = [_hover(bar) for bar in shown.itertuples()]
        drawn += [table.assign(panel=name) for table in (pandas.DataFrame({"place": lanes}), shown.assign(hover=hover))]
        told.append(_totals(name, *windows[-1], events, lanes))
    table = pandas.concat(told)
    unit_us, unit = time_unit(max(end for _, end in windows))
    places = pandas.concat(drawn)
    places[["begin", "value"]] /= unit_us
    if len(places) <= NAMED_BARS:
        places["text"] = [_name_inside(bar, (end_us - begin_us) / unit_us) for bar in places.itertuples()]
    figure = bars(places, LOOKS, f"{unit} since the first event", shared=False)
    for row, (begin, end) in enumerate(windows, start=1):
        figure.update_xaxes(range=(begin / unit_us, end / unit_us), row=row, col=1)
    count, there = sum(len(bar.x) for bar in figure.data), table["events"].sum()
    figure.update_traces(
        marker_line_width=0.5 if count < 300 else 0, textposition="inside", insidetextanchor="middle", textangle=0
    )
    figure.update_yaxes(showgrid=False, zeroline=False).update_layout(barmode="overlay")
    thinned = f", {there:,} events thinned to {count:,} bars" if count < there else ""
    begin, end = windows[0]
    span = f"{begin:,.0f} to {end:,.0f} µs" if len(windows) == 1 else f"{end - begin:,.0f} µs of each"
    return finish(figure, f"Timeline of host and GPU, {span}{thinned}", traces, table)


def queue(traces: Traces) -> go.Figure:
    """How many kernels were launched but not started, over time."""
    table = joined(traces, Trace.queue)
    recordings = table.groupby("recording", sort=False)
    figure = panels(dict.fromkeys(recordings.groups, 190))
    thinned = False
    unit_us, unit = time_unit(table["time_us"].max())
    for number, (name, rows) in enumerate(recordings, start=1):
        shown = rows.iloc[thin_steps(rows["waiting"].to_numpy())]
        thinned |= len(shown) < len(rows)
        figure.add_scatter(
            **dict(
                x=shown["time_us"].to_numpy() / unit_us,
                y=shown["waiting"].to_numpy(),
                name=escaped(name),
                showlegend=False,
            ),
            **dict(mode="lines", line=dict(shape="hv", color=WALL, width=1), row=number, col=1),
            **dict(fill="tozeroy", fillcolor=FAINT),
            hovertemplate=f"from %{{x:,.3f}} {unit} on, %{{y}} kernels wait<extra></extra>",
        )
        figure.add_hline(y=rows["mean"].iloc[0], line=dict(color=HOST, dash="dash"), row=number, col=1)
    figure.update_yaxes(title="kernels waiting", rangemode="tozero").update_xaxes(tickformat=",")
    thinning = f"; drawn with {QUEUE_POINTS:,} points, each maximum kept" if thinned else ""
    figure.update_xaxes(title=f"{unit} since the first event{thinning}", row=len(recordings), col=1)
    told = recordings.agg(kernels_waiting_mean=("mean", "first"), kernels_waiting_most=("waiting", "max"))
    title = "Launch queue: kernels launched but not started (dashed: mean)"
    return finish(figure, title, traces, told.reset_index())


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
    """Bars, at most about `most`, with their durations in `took` and the number of joined events in `events`.

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
    return bars.reset_index("place", drop=True).reset_index()


def _lanes(rank: Rank, events: pandas.DataFrame) -> list[str]:
    """Those of the host in which something happened, and all streams."""
    streams = [f"stream {stream}" for stream in sorted(rank.kernels["stream"].unique())]
    return [*(lane for lane in LANES if (events["lane"] == lane).any()), *streams]


def _name_inside(bar: Any, whole: float) -> str:
    """The name of a kernel or copy as it fits into its bar, perhaps its first word. The host's bars have none."""
    if bar.series not in KINDS:
        return ""
    name, room = shortened(bar.name), 100 * bar.value / whole
    word = name if len(name) <= room else name.split()[0]
    return escaped(word) if len(word) <= 2 * room else ""  # Plotly makes letters smaller where they need it


def _hover(bar: Any) -> str:
    joined = f"; {bar.events} events" if bar.events > 1 else ""
    return f"{escaped(shortened(bar.name, 90))}<br>{bar.value:,.1f} µs, from {bar.begin:,.1f} µs on{joined}"


def _totals(name: str, begin: float, end: float, events: pandas.DataFrame, lanes: list[str]) -> pandas.DataFrame:
    """For each lane of a recording the number of its events, and the sum of their durations."""
    took = (events["end"] - events["begin"]).groupby(events["lane"]).agg(["size", "sum"]).reindex(lanes, fill_value=0)
    columns = {"recording": name, "from_us": begin, "to_us": end, "lane": lanes}
    return pandas.DataFrame({**columns, "events": took["size"].astype(int), "total_us": took["sum"].astype(float)})


def thin_steps(values: np.ndarray) -> np.ndarray:
    """The positions of the `values` to draw: at most `QUEUE_POINTS`, with the least and the largest of each stretch."""
    if len(values) <= QUEUE_POINTS:
        return np.arange(len(values))
    stretches = np.array_split(np.arange(len(values)), QUEUE_POINTS // 2)
    extremes = [(part[values[part].argmin()], part[values[part].argmax()]) for part in stretches]
    return np.unique(extremes)
