"""What bounds a recording, and what each cause of its wall time costs."""

from __future__ import annotations

import warnings
from itertools import cycle

import pandas
import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show.recordings import Traces, bars, finish, joined, named, percent, readable
from labkit.show.style import HOST, PATTERNS, escaped, table_of
from labkit.simulate.what_if import ReplayWarning
from labkit.trace import Trace
from labkit.traces.reading import TraceError


def summary(traces: Traces) -> go.Figure:
    """What bounds each recording, why, and the numbers that say so: a table with a column for each recording."""
    table = joined(traces, Trace.summary)
    cells = readable(table).set_index("recording").map(escaped)
    cells.iloc[:, 0] = "<b>" + cells.iloc[:, 0] + "</b>"
    cells = cells.T.reset_index(names="").rename(columns=escaped)
    return finish(table_of(cells), "What bounds each recording (first remedy and costs: SIMULATED)", traces, table)


def remedies(traces: Traces) -> go.Figure:
    """How much of the wall time would be gone without each cause, and how many times faster that is: SIMULATED.

    A recording that cannot be played again has a note in place of bars, and one that differs from its replay has both.
    """
    notes = {}

    def of_trace(trace: Trace) -> pandas.DataFrame:
        name = next(name for name, each in named(traces).items() if each is trace)
        try:
            with warnings.catch_warnings(record=True) as doubts:
                warnings.simplefilter("always", ReplayWarning)
                table = trace.remedies()
            notes[name] = " ".join(str(doubt.message) for doubt in doubts)
            return table
        except TraceError:
            raise
        except LabkitError as error:
            notes[name] = str(error)
            return pandas.DataFrame({"rank": [], "cause": [], "share_of_wall": [], "times_faster_at_most": []})

    table = joined(traces, of_trace)
    if table.empty:
        raise LabkitError(" ".join(notes.values()))
    causes = list(dict.fromkeys(table.sort_values("share_of_wall", ascending=False)["cause"]))
    table = table.sort_values("cause", key=lambda names: names.map(causes.index), kind="stable")
    recordings = list(dict.fromkeys(table["recording"]))
    patterns = dict(zip(recordings, cycle(PATTERNS), strict=False))
    looks = {name: (escaped(name), HOST, patterns[name]) for name in recordings}
    faster = table["times_faster_at_most"].map("at most {:.2f} times faster".format)
    gone = table["share_of_wall"].map(percent)
    columns = zip(table["recording"].map(escaped), table["cause"], faster, gone, table["try"], strict=True)
    hover = [
        f"{name}: {cause}<br>{told}, {share} gone<br>try: {advice}" for name, cause, told, share, advice in columns
    ]
    drawn = table.assign(value=table["share_of_wall"], place=table["cause"], series=table["recording"], hover=hover)
    figure = bars(drawn, looks, "share of the wall time that would be gone", beside="recording")
    for bar, name in zip(figure.data, recordings, strict=True):
        rows = table[table["recording"] == name]
        bar.update(text=[f"{times:.2f}x" for times in rows["times_faster_at_most"]], textposition="outside")
    figure.update_xaxes(tickformat=".0%", range=[0, 1.15 * max(0.01, table["share_of_wall"].max())])
    return finish(figure, "Times faster at most without each cause: SIMULATED", traces, table, notes)
