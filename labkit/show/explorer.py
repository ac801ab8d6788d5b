"""A widget in which to look at recordings from every side."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show import breakdowns, host, kernels, launching, verdict
from labkit.show.figures import in_words
from labkit.show.recordings import each_rank, named
from labkit.show.timeline import timeline_figure
from labkit.show.widgets import replace
from labkit.traces.reading import TraceError
from labkit.traces.trace import Trace

ALL = "all, side by side"
VIEWS: dict[str, Callable[..., go.Figure]] = {
    "where the time went": breakdowns.temporal_figure,
    "what bounds it": verdict.summary_figure,
    "step by step": breakdowns.steps_figure,
    "idle time by cause": breakdowns.idle_figure,
    "largest gaps": breakdowns.gaps_figure,
    "kinds of kernels": kernels.kernel_kinds_figure,
    "kernels that took most": kernels.top_kernels_figure,
    "copies and memsets": kernels.memory_figure,
    "launches": launching.launches_figure,
    "launch delays": launching.delays_figure,
    "launch queue": launching.trace_queue_figure,
    "streams at once": launching.concurrency_figure,
    "timeline": timeline_figure,
    "ranges on the host": host.ranges_figure,
    "operators on the host": host.operators_figure,
}


def trace_explorer(traces: Trace | Mapping[str, Trace]) -> ipywidgets.VBox:
    """Recordings to look at from every side: one or all, all steps or some, any figure; and their files for Perfetto.

    Launches have sliders for the cutoffs, the timeline one for its interval and, if there are several, a choice of
    ranks. Steps are counted from the first recorded one, as their numbers may differ between recordings; the figure
    shows their numbers under its title. Of a trace recorded on a CPU the explorer says what is missing, and shows the
    operators.
    """
    if not traces:
        raise LabkitError("traces: give at least one, as {'baseline': labkit.Trace(path)}.")
    return _Explorer(named(traces)).box


class _Explorer:
    """The explorer's widgets, in `box`, and what happens when they change."""

    def __init__(self, traces: dict[str, Trace]) -> None:
        self.traces = traces
        names = [*traces, ALL] if len(traces) > 1 else [*traces]
        style = dict(style={"description_width": "130px"}, layout={"width": "560px"})
        self.recording = ipywidgets.Dropdown(options=names, description="recording", **style)
        self.view = ipywidgets.Dropdown(options=list(VIEWS), description="figure", **style)
        self.all_steps = ipywidgets.Checkbox(True, description="all steps", **style)
        slow = dict(continuous_update=False, **style)
        self.steps = ipywidgets.IntRangeSlider(value=(1, 1), min=1, max=1, description="recorded steps", **slow)
        times = dict(readout_format=",.0f", **slow)
        self.runtime = ipywidgets.FloatSlider(50, min=0, max=500, step=5, description="call longer than, µs", **times)
        self.delay = ipywidgets.FloatSlider(100, min=0, max=1000, step=5, description="delay over, µs", **times)
        self.rank = ipywidgets.Dropdown(description="rank", **style)
        self.interval = ipywidgets.FloatRangeSlider(min=0, max=1, step=1, description="interval, µs", **times)
        self.message, self.words, self.figure = ipywidgets.HTML(), ipywidgets.HTML(), go.FigureWidget()
        self._fitting = False
        self._fit()
        for control in (self.recording, self.all_steps, self.steps):
            control.observe(self._fit, names="value")
        redrawing = [self.view, self.runtime, self.delay, self.rank, self.interval]
        for control in redrawing:
            control.observe(self._redraw, names="value")
        controls = [self.recording, self.all_steps, self.steps, *redrawing]
        self.box = ipywidgets.VBox([*controls, self.message, self.figure, self.words, files_widget(traces)])

    def _recordings(self) -> dict[str, Trace]:
        """The chosen recording, or all."""
        if self.recording.value == ALL:
            return self.traces
        return {self.recording.value: self.traces[self.recording.value]}

    def _parts(self) -> dict[str, Trace]:
        """The chosen steps of the chosen recordings."""
        if self.all_steps.value or self.steps.max == 1:
            return self._recordings()
        first, last = (step - 1 for step in self.steps.value)
        numbers = {name: _step_numbers(trace) for name, trace in self._recordings().items()}
        return {name: self.traces[name].steps(of_it[first], of_it[last]) for name, of_it in numbers.items()}

    def _fit(self, _change: object = None) -> None:
        """Gives the controls the limits of what is chosen, and then draws, once."""
        if self._fitting:
            return
        self._fitting = True
        recordings = self._recordings().values()
        self.steps.max = max(1, min(len(_step_numbers(trace)) for trace in recordings))
        several = [set(trace.ranks) for trace in recordings if len(trace.ranks) > 1]
        ranks = sorted(set.intersection(*several)) if several else []
        if self.rank.options != tuple(ranks):
            self.rank.options = ranks
        try:
            self._fit_interval()
        except TraceError:  # which the figure will raise and show
            pass
        self._fitting = False
        self._redraw()

    def _fit_interval(self) -> None:
        """From the first to the last event; at first, the first tenth of the first recording's wall time."""
        ranks = list(each_rank(self._parts()).values())
        first = [rank.recording.events["begin"].min() for rank in ranks]
        start, stop = ranks[0].start - first[0], ranks[0].stop - first[0]
        self.interval.max = np.ceil(max(rank.stop - begin for rank, begin in zip(ranks, first, strict=True)))
        self.interval.value = (np.floor(start), np.ceil(start + (stop - start) / 10))

    def _redraw(self, _change: object = None) -> None:
        if self._fitting:
            return
        view = self.view.value
        _show(self.steps.max > 1, self.all_steps)
        _show(self.steps.max > 1 and not self.all_steps.value, self.steps)
        _show(view == "launches", self.runtime)
        _show(view in ("launches", "launch delays"), self.delay)
        _show(view == "timeline", self.interval)
        _show(view == "timeline" and len(self.rank.options) > 1, self.rank)
        try:
            drawn, self.message.value = self._draw(view), ""
        except TraceError as error:
            drawn = host.operators_figure(self._recordings())
            self.message.value = f"<b>{html.escape(str(error))}</b>"
        replace(self.figure, drawn)
        self.words.value = in_words(drawn)

    def _draw(self, view: str) -> go.Figure:
        settings = {
            "launches": (self.runtime.value, self.delay.value),
            "launch delays": (self.delay.value,),
            "timeline": (*self.interval.value, self.rank.value),
        }
        return VIEWS[view](self._parts(), *settings.get(view, ()))


def files_widget(traces: Mapping[str, Trace]) -> ipywidgets.Output:
    """Where the recordings' files are, and how to open them in Perfetto.

    An output and no `ipywidgets.HTML`, as JupyterLab takes links for relative to the notebook in outputs only.
    """
    files = [f"<li>{name}: {_link(rank.recording.file)}</li>" for name, rank in each_rank(traces).items()]
    text = (
        "<details><summary>Open in Perfetto</summary>"
        '<p>At <a href="https://ui.perfetto.dev" target="_blank">ui.perfetto.dev</a> choose "Open trace file". Where '
        "the notebook runs on another machine, download the file first:</p>"
        f"<ul>{''.join(files)}</ul></details>"
    )
    shown = {"output_type": "display_data", "data": {"text/html": text}, "metadata": {}}
    return ipywidgets.Output(outputs=(shown,))


def _link(file: Path) -> str:
    """The whole path, as a link that downloads if the file can be reached from the notebook's folder."""
    path = f"<code>{html.escape(str(file.resolve()))}</code>"
    try:
        relative = Path(os.path.relpath(file.resolve())).as_posix()
    except ValueError:  # on Windows, a file on another drive
        return path
    return f'<a href="{html.escape(quote(relative))}" download>{path}</a>'


def _step_numbers(trace: Trace) -> list[int]:
    """Of the steps that were recorded: of several ranks, in the first."""
    return next(iter(trace.ranks.values())).steps["step"].tolist()


def _show(shown: bool, *controls: ipywidgets.Widget) -> None:
    for control in controls:
        control.layout.display = "" if shown else "none"
