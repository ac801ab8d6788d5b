"""A widget to explore recordings: every view of one or all of them."""

from __future__ import annotations

import functools
import html
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show.hta import TABLES
from labkit.show.recordings import Traces, each_rank, named
from labkit.show.style import in_words
from labkit.show.trace_views import VIEWS, trace
from labkit.show.widgets import WIDE, FigureInPlace
from labkit.trace import Trace
from labkit.traces.reading import TraceError

ALL = "all, side by side"


def trace_explorer(traces: Traces) -> ipywidgets.VBox:
    """A menu of recordings, a menu of views, and the files of the recordings for Perfetto.

    You can look at one recording or at all, at all steps or some. Launches have sliders for the cutoffs, and the
    timeline has one for its interval. Steps are counted from the first recorded one, because their numbers may differ
    between recordings. The figure shows their numbers under its title.
    For a trace recorded on a CPU the explorer names the missing events, and shows the operators.

    Args:
        traces: a trace, or traces by name, as `labkit.show.trace` takes them.

    Raises:
        LabkitError: there is no trace.
    """
    return _Explorer(named(traces)).box


class _Explorer:
    """The explorer's widgets, in `box`, and their reactions to changes."""

    def __init__(self, traces: dict[str, Trace]) -> None:
        self.traces = traces
        names = [*traces, ALL] if len(traces) > 1 else [*traces]
        views = [(words, view) for view, (words, _) in VIEWS.items()]
        self.recording = ipywidgets.Dropdown(options=names, description="recording", **WIDE)
        self.view = ipywidgets.Dropdown(options=views, description="figure", **WIDE)
        slow = dict(continuous_update=False, **WIDE)
        self.steps = ipywidgets.IntRangeSlider(value=(1, 1), min=1, max=1, description="recorded steps", **slow)
        times = dict(readout_format=",.0f", **slow)
        self.runtime = ipywidgets.FloatSlider(50, min=0, max=500, step=5, description="call longer than, µs", **times)
        self.delay = ipywidgets.FloatSlider(100, min=0, max=1000, step=5, description="delay over, µs", **times)
        self.interval = ipywidgets.FloatRangeSlider(min=0, max=1, step=1, description="interval, µs", **times)
        self.table = ipywidgets.Dropdown(options=list(TABLES), description="HTA's table", **WIDE)
        self.message = ipywidgets.HTML()
        limiting = [self.recording, self.steps]
        controls = [*limiting, self.view, self.runtime, self.delay, self.table, self.interval]
        self._fit()
        drawn = self._draw()
        self.figure, self.words = FigureInPlace(drawn), ipywidgets.HTML(in_words(drawn))
        for control in controls:
            control.observe(functools.partial(self._changed, control in limiting), names="value")
        self.box = ipywidgets.VBox([*controls, self.message, self.figure, self.words, _files_widget(traces)])

    def _recordings(self) -> dict[str, Trace]:
        """The chosen recording, or all."""
        return {name: trace for name, trace in self.traces.items() if self.recording.value in (name, ALL)}

    def _parts(self) -> dict[str, Trace]:
        """The chosen steps of the chosen recordings. All steps include what was recorded between and after them."""
        if self.steps.value == (1, self.steps.max):
            return self._recordings()
        return {
            name: trace.steps(*(_step_numbers(trace)[step - 1] for step in self.steps.value))
            for name, trace in self._recordings().items()
        }

    def _fit(self) -> None:
        """Gives the controls the limits of the chosen recordings, without redrawing for each of them."""
        self._fitting = True
        recordings = self._recordings().values()
        all_steps = self.steps.value == (1, self.steps.max)
        self.steps.max = max(1, min(len(_step_numbers(trace)) for trace in recordings))
        self.steps.value = (1, self.steps.max) if all_steps else self.steps.value
        with suppress(TraceError):  # the figure will raise it, and show it
            self._fit_interval()
        self._fitting = False

    def _fit_interval(self) -> None:
        """Allows times up to the last event, and chooses the first tenth of the first recording's wall time."""
        times = []
        for rank in each_rank(self._parts()).values():
            first = rank.recording.events["begin"].min()
            times.append((rank.start - first, rank.stop - first))
        start, stop = times[0]
        self.interval.max = np.ceil(max(stop for _, stop in times))
        self.interval.value = (np.floor(start), np.ceil(start + (stop - start) / 10))

    def _draw(self) -> go.Figure:
        """Shows the controls that the view has, and makes its figure, or says why there is none."""
        view = self.view.value
        shown = {self.steps: self.steps.max > 1, self.table: view == "hta", self.interval: view == "timeline"}
        shown |= {self.runtime: view == "launches", self.delay: view == "launches"}
        for control, needed in shown.items():
            control.layout.display = "" if needed else "none"
        begin, end = self.interval.value
        settings: dict[str, dict[str, Any]] = {
            "launches": dict(runtime_cutoff=self.runtime.value, delay_cutoff=self.delay.value),
            "hta": dict(table=self.table.value),
            "timeline": dict(begin_us=begin, end_us=end),
        }
        try:
            drawn, self.message.value = trace(self._parts(), view, **settings.get(view, {})), ""
        except LabkitError as error:  # events are missing, or it cannot be played again
            drawn = trace(self._recordings(), "operators")
            self.message.value = f"<b>{html.escape(str(error))}</b>"
        return drawn

    def _changed(self, limiting: bool, _change: object) -> None:
        """Redraws after a change by the user. `limiting` is a control that sets limits to others."""
        if self._fitting:
            return
        if limiting:
            self._fit()
        drawn = self._draw()
        self.figure.replace(drawn)
        self.words.value = in_words(drawn)


def _files_widget(traces: Mapping[str, Trace]) -> ipywidgets.Output:
    """The paths of the recordings' files, and how to open them in Perfetto.

    An output and not an `ipywidgets.HTML`, because JupyterLab takes links as relative to the notebook in outputs only.
    """
    files = [f"<li>{html.escape(name)}: {_link(rank.recording.file)}</li>" for name, rank in each_rank(traces).items()]
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
    """The numbers of the recorded steps, or those of the first rank if there are several."""
    return next(iter(trace.ranks.values())).steps["step"].tolist()
