"""Views that judge a recording: its verdict, what each cause costs, its critical path, and the rates it achieved."""

from __future__ import annotations

import warnings
from itertools import cycle

import pandas
import plotly.graph_objects as go

from labkit.errors import LabkitError
from labkit.show.recordings import Traces, bars, finish, joined, percent, readable
from labkit.show.style import HOST, KERNEL, PATTERNS, UNUSED, escaped, shortened, table_of
from labkit.simulate.recorded_replay import ReplayWarning
from labkit.trace import Trace
from labkit.traces.rank import NOWHERE

PARTS_OF_PATH, TOP_SHAPES = 15, 12


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
    lacking: dict[str, str] = {}
    with warnings.catch_warnings(record=True) as doubts:  # each names its file
        warnings.simplefilter("always", ReplayWarning)
        table = joined(traces, Trace.remedies, lacking)
    note = "; ".join([*(f"{name}: {why}" for name, why in lacking.items()), *(str(doubt.message) for doubt in doubts)])
    causes = list(dict.fromkeys(table.sort_values("share_of_wall", ascending=False)["cause"]))
    table = table.sort_values("cause", key=lambda names: names.map(causes.index), kind="stable")
    recordings = list(dict.fromkeys(table["recording"]))
    looks = {name: (escaped(name), HOST, pattern) for name, pattern in zip(recordings, cycle(PATTERNS), strict=False)}
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
    return finish(figure, "Times faster at most without each cause: SIMULATED", traces, table, note)


def path(traces: Traces) -> go.Figure:
    """The critical path as one bar: the kernels, operators and pauses on it, the longest first."""
    table = joined(traces, Trace.critical_path)
    if table.empty:
        raise LabkitError("there is no critical path: the kernels on the GPU took no time at all.")
    table = table.groupby("recording", sort=False).head(PARTS_OF_PATH)
    looks = {where: (where, colour, "") for where, colour in (("host", HOST), ("GPU", KERNEL), ("between", UNUSED))}
    drawn = table.assign(value=table["share_of_wall"], series=table["where"])
    figure = bars(drawn, looks, f"share of the wall time: the {PARTS_OF_PATH} longest parts of the path")
    for bar in figure.data:
        parts = drawn[drawn["series"] == bar.legendgroup]
        names = parts["name"].where(parts["name"] != NOWHERE, parts["what"])
        characters = (90 * parts["value"]).astype(int)  # that fit into each part
        fits = [shortened(name, n) if n > 5 else "" for name, n in zip(names, characters, strict=True)]
        bar.update(text=[escaped(name) for name in fits], textposition="inside")
    figure.update_traces(insidetextanchor="middle", constraintext="none", textfont_color="black", textangle=0)
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    return finish(figure, "The critical path: what determined the wall time, by name", traces, table)


def achieved(traces: Traces) -> go.Figure:
    """Convolutions, matrix products and normalisation by their shapes: time, and the rates that they achieved.

    Recordings without shapes have no bars. If none has shapes, it is a `TraceError`.
    """
    lacking: dict[str, str] = {}
    table = joined(traces, Trace.achieved, lacking)
    if table.empty:
        raise LabkitError("no convolution, matrix product or normalisation was recorded.")
    table = table.sort_values("us", ascending=False, kind="stable").groupby("recording", sort=False).head(TOP_SHAPES)
    place = [
        f"{shortened(name.removeprefix('aten::'), 26)} {shortened(inputs, 40)}"
        for name, inputs in zip(table["name"], table["inputs"], strict=True)
    ]
    drawn = table.assign(value=table["us"] / 1e3, place=[escaped(each) for each in place], series="all")
    drawn["panel"] = table["recording"]
    figure = bars(drawn, {"all": ("", KERNEL, "")}, "milliseconds on the GPU", shared=False)
    for bar, (_, rows) in zip(figure.data, table.groupby("recording", sort=False), strict=True):
        flops = rows["tflop_per_s"].map("{:.1f} TFLOP/s".format, na_action="ignore")
        rates = zip(flops, rows["gb_per_s"].map("{:,.0f} GB/s".format, na_action="ignore"), strict=True)
        bar.update(text=[", ".join(pandas.Series(each).dropna()) for each in rates], textposition="auto")
    title = f"The {TOP_SHAPES} dearest convolutions, matrix products and normalisations by shapes, and their rates"
    return finish(figure.update_layout(showlegend=False), title, traces, table, lacking)
