"""A recording's timeline, and a widget in which to look at recordings from every side."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping

import ipywidgets
import numpy as np
import pandas
import plotly.graph_objects as go

from labkit.show import traces as figures
from labkit.show.figures import COLOURS, HOST, UNUSED
from labkit.show.recordings import add_bars, finish, look, named, shortened
from labkit.show.traces import KINDS
from labkit.traces.ranks import CALLS, Rank
from labkit.traces.reading import TraceError
from labkit.traces.tables import Trace

MOST_BARS = 1500
# What a bar is, in the order of the legend: its colour and hatching. Players' ranges begin with their names.
PLAYERS = {"generators": (COLOURS["G"],), "discriminators": (COLOURS["D"],)}
HOST_LOOKS = {"step": (UNUSED, "/"), **PLAYERS, "other range": (UNUSED,), "CUDA call": (HOST,)}
LOOKS = {**HOST_LOOKS, **{kind: (colour,) for kind, colour in KINDS.items()}}
LANES = ("steps", "ranges", "CUDA calls")  # of the host, above the streams
ALL = "all, side by side"


def timeline_figure(trace: Trace | Mapping[str, Trace], begin_us: float, end_us: float) -> go.Figure:
    """What host and GPU did when: steps, labkit's ranges, calls of CUDA, and each stream. Of several ranks, the first.

    What would be more than 1500 bars is thinned: events of one lane that begin close together become one bar, as long
    as they took together, so that a lane's share of colour stays true. The title then says so.

    Args:
        trace: a recording, or one recording by its name.
        begin_us: where to begin, in microseconds since the first event.
        end_us: where to end.

    Raises:
        TraceError: there is no GPU activity.
    """
    rank = next(iter(next(iter(named(trace).values())).ranks.values()))
    events = events_between(rank, begin_us, end_us)
    lanes = [*(lane for lane in LANES if (events["lane"] == lane).any()), *_streams(rank)]
    bars, within = thin(events, begin_us, end_us)
    figure = go.Figure()
    for what in (what for what in LOOKS if (bars["what"] == what).any()):
        rows = bars[bars["what"] == what]
        hover = [
            f"{html.escape(shortened(row.name, 90))}<br>{row.took:,.1f} µs, from {row.begin:,.1f} µs on"
            + (f"; {row.events} events" if row.events > 1 else "")
            for row in rows.itertuples(index=False)
        ]
        places = rows["lane"].map(lanes.index)
        add_bars(figure, places, rows["took"], hover, base=list(rows["begin"]), name=what, marker=look(*LOOKS[what]))
    figure.update_traces(width=0.7, marker_line_width=0.5 if len(bars) < 300 else 0)
    figure.update_yaxes(tickvals=list(range(len(lanes))), ticktext=lanes, showgrid=False, zeroline=False)
    figure.update_yaxes(range=[len(lanes) - 0.5, -0.5])
    figure.update_xaxes(title="microseconds since the first event", range=[begin_us, end_us], tickformat=",")
    figure.update_layout(barmode="overlay", height=230 + 45 * len(lanes))
    thinned = f", {len(events):,} events thinned to {len(bars):,} bars" if within else ""
    title = f"Timeline of host and GPU, {begin_us:,.0f} to {end_us:,.0f} µs{thinned}"
    return finish(figure, title, trace, _in_words(events, lanes), reverse=False)


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


def thin(events: pandas.DataFrame, begin_us: float, end_us: float) -> tuple[pandas.DataFrame, float]:
    """Bars: events and, in `took`, their durations; and the microseconds within which events were joined, 0 for none.

    A joined bar has the name and colour of the longest of its events.
    """
    events = events.assign(took=events["end"] - events["begin"], events=1)
    if len(events) <= MOST_BARS:
        return events, 0.0
    within = (end_us - begin_us) * events["lane"].nunique() / MOST_BARS
    place = np.minimum((events["begin"] - begin_us) // within, MOST_BARS // events["lane"].nunique() - 1)
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
    return bars.reset_index(), within


def _streams(rank: Rank) -> list[str]:
    return [f"stream {stream}" for stream in sorted(rank.kernels["stream"].unique())]


def _in_words(events: pandas.DataFrame, lanes: list[str]) -> list[str]:
    """For each lane how many events it has, and how long they took."""
    words = []
    for lane in lanes:
        ours = events[events["lane"] == lane]
        took = (ours["end"] - ours["begin"]).sum()
        words.append(f"{lane}: {len(ours):,} event{'s' * (len(ours) != 1)}, {took:,.1f} µs in all")
    return words


VIEWS: dict[str, Callable[..., go.Figure]] = {
    "where the time went": figures.temporal_figure,
    "idle time by cause": figures.idle_figure,
    "kinds of kernels": figures.kernel_kinds_figure,
    "kernels that took most": figures.top_kernels_figure,
    "launches": figures.launches_figure,
    "launch queue": figures.trace_queue_figure,
    "streams at once": figures.concurrency_figure,
    "timeline": timeline_figure,
    "operators on the host": figures.operators_figure,
}


def trace_explorer(traces: Trace | Mapping[str, Trace]) -> ipywidgets.VBox:
    """Recordings to look at from every side: one or all, any figure; cutoffs for launches, the timeline's interval.

    Of a trace recorded on a CPU it says what is missing, and shows the operators. The timeline is of one recording:
    of all, the first.
    """
    return _Explorer(named(traces)).box


class _Explorer:
    """The explorer's widgets, in `box`, and what happens when they change."""

    def __init__(self, traces: dict[str, Trace]) -> None:
        self.traces = traces
        names = [*traces, ALL] if len(traces) > 1 else [*traces]
        style = dict(style={"description_width": "130px"}, layout={"width": "560px"})
        self.recording = ipywidgets.Dropdown(options=names, description="recording", **style)
        self.view = ipywidgets.Dropdown(options=list(VIEWS), description="figure", **style)
        slow = dict(continuous_update=False, readout_format=",.0f", **style)
        self.runtime = ipywidgets.FloatSlider(50, min=0, max=500, step=5, description="call longer than, µs", **slow)
        self.delay = ipywidgets.FloatSlider(100, min=0, max=1000, step=5, description="delay over, µs", **slow)
        self.interval = ipywidgets.FloatRangeSlider(min=0, max=1, step=1, description="interval, µs", **slow)
        self.message, self.words, self.figure = ipywidgets.HTML(), ipywidgets.HTML(), go.FigureWidget()
        self._limit_interval()
        self._redraw()
        self.recording.observe(self._choose_recording, names="value")
        controls = [self.view, self.runtime, self.delay, self.interval]
        for control in controls:
            control.observe(self._redraw, names="value")
        self.box = ipywidgets.VBox([self.recording, *controls, self.message, self.figure, self.words])

    def _chosen(self) -> dict[str, Trace]:
        """The chosen recording, or all; of all, the first for the timeline."""
        if self.recording.value != ALL:
            return {self.recording.value: self.traces[self.recording.value]}
        return dict(list(self.traces.items())[:1]) if self.view.value == "timeline" else self.traces

    def _choose_recording(self, _change: object) -> None:
        self._limit_interval()
        self._redraw()

    def _limit_interval(self) -> None:
        """Sets the slider to the chosen recording's wall time, and its interval to the first tenth of it."""
        rank = next(iter(next(iter(self._chosen().values())).ranks.values()))
        try:
            start, stop = rank.start, rank.stop
        except TraceError:
            return
        with self.interval.hold_trait_notifications():
            self.interval.min, self.interval.max = 0, np.ceil(stop)
            self.interval.value = (np.floor(start), np.ceil(start + (stop - start) / 10))

    def _redraw(self, _change: object = None) -> None:
        view = self.view.value
        _show(view == "launches", self.runtime, self.delay)
        _show(view == "timeline", self.interval)
        try:
            drawn, self.message.value = self._draw(view), ""
        except TraceError as error:
            drawn = figures.operators_figure(self._chosen())
            self.message.value = f"<b>{html.escape(str(error))}</b>"
        replace(self.figure, drawn)
        words = html.escape(drawn.layout.meta["text"])
        self.words.value = f"<details><summary>This figure in words</summary>{words}</details>"

    def _draw(self, view: str) -> go.Figure:
        arguments: tuple[float, ...] = ()
        if view == "launches":
            arguments = self.runtime.value, self.delay.value
        elif view == "timeline":
            arguments = self.interval.value
        return VIEWS[view](self._chosen(), *arguments)


def _show(shown: bool, *controls: ipywidgets.Widget) -> None:
    for control in controls:
        control.layout.display = "" if shown else "none"


def replace(figure: go.FigureWidget, drawn: go.Figure) -> None:
    """Makes `figure` show what `drawn` does, which may be of another kind, in place: Colab cannot show it again."""
    layout = drawn.layout.to_plotly_json()
    del layout["template"]  # the same in every figure, and slow to update
    gone = {part: None for part in figure.layout.to_plotly_json() if part not in layout and part != "template"}
    figure.data = ()
    with figure.batch_update():
        figure.update_layout({**gone, **layout}, overwrite=True)
    figure.add_traces(drawn.data)
