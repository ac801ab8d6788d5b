"""The views of a trace: each draws one table of `labtrace.Trace`, of one recording or of several side by side.

Most are bars, and `VIEWS` says which columns of which table they draw. A trace of several ranks is drawn rank by rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas
import plotly.graph_objects as go

from labtrace.errors import LabError, check_known
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.show import style
from labtrace.show.bars import Looks, Traces, bars, by_name, each_rank, finish, joined, readable
from labtrace.show.hta import hta
from labtrace.show.most_time import most_time
from labtrace.show.timeline import LOOKS, PROCESSOR, players, timeline
from labtrace.trace import Trace

MOST_NAMES = 12  # that are drawn of each recording


def _plain(colours: Mapping[str, str]) -> Looks:
    """Series that are named in the legend as in the table, without hatching."""
    return {name: (name, colour, "") for name, colour in colours.items()}


ACTIVITIES = _plain({"idle": style.UNUSED, **style.BY_KIND})
HOSTS = _plain({"operator": style.UNUSED, "CUDA call": style.HOST})
CAUSES: Looks = {
    "host_wait": ("waits for the host (host_wait)", style.HOST, "/"),
    "kernel_wait": ("pauses between kernels (kernel_wait)", style.UNUSED, ""),
    "other": ("waits for something else (other)", "#DDDDDD", "x"),
    "unknown": ("not known (unknown)", "#FFFFFF", "."),
}
COMMUNICATION: Looks = {
    "own_us": ("its own work and pauses", style.KERNEL, ""),
    "sent_us": ("sent", "#D9A9BF", "/"),
    "waits_us": ("waited for other ranks", style.BY_KIND["communication"], ""),
}


def trace(traces: Traces, view: str = "temporal", **settings: Any) -> go.Figure:
    """A figure of one trace, or of several side by side.

    Args:
        traces: a trace, or traces by name, as in ``{"baseline": labtrace.Trace(path)}``. In the place of a trace may be
            the path of one or of a folder with one of each rank.
        view: one of these. Each draws the table of the same name of `labtrace.Trace`, unless the second column differs.
        settings: of the view, and of the table that it draws.

            | view | shows | settings |
            |---|---|---|
            | "temporal", "steps" | the wall time of the whole, or of each step, by activity | |
            | "processor" | a step's time by kind of work, recorded without a GPU | |
            | "summary", "remedies" | the verdict, and the cost of each cause | |
            | "idle", "gaps" | idle time of the whole device by cause, and by what the host did in most of a gap | |
            | "kernels" | those that took most time | |
            | "timeline" | host and GPU over time | `begin_us`, `end_us` |
            | "communication" | how long each rank worked, sent, and waited for others | |
            | "ranges", "operators" | the host's time. For a CPU's traces, too | |
            | "achieved" | the most expensive operators by shapes, and their rates | |
            | "hta" | HTA's tables beside labtrace's numbers: see `labtrace.show.hta` | `table` |

    Raises:
        LabError: there is no such view.
        TraceError: a trace lacks the events that the view needs, such as GPU activity. The message names its file.
    """
    check_known("view", view, VIEWS)
    return VIEWS[view](by_name(traces), **settings)


@dataclass(frozen=True)
class Bars:
    """A view that draws the rows of a table as bars.

    Attributes:
        title: of the figure.
        table: makes it, of a trace and the view's settings.
        looks: of the series of bars. Rows of other series are only in the text.
        series: the column that says which of the series a row belongs to. Without it, the series are columns of the
            table.
        value: the column with the lengths of the bars, which are shares or microseconds.
        axis: the title of the axis, with {} for the unit. By default a share of the wall time, or a sum of durations.
        place: the column with the labels of the bars. "recording" stacks all bars of a recording. Others have a panel
            for each recording, and of bars by "name" only the first are drawn, and numbered.
    """

    title: str
    table: Callable[..., pandas.DataFrame]
    looks: Looks
    series: str = ""
    value: str = "share_of_wall"
    axis: str = ""
    place: str = "recording"

    def __call__(self, traces: Traces, **settings: Any) -> go.Figure:
        with warnings.catch_warnings(record=True) as doubts:  # each names its file
            warnings.simplefilter("always", ReplayWarning)
            table = joined(traces, lambda trace: self.table(trace, **settings))
        stacked, by_name = self.place == "recording", self.place == "name"
        if by_name:
            table = table.groupby("recording", sort=False).head(MOST_NAMES)
        place = table[self.place].astype(str).map(style.label)
        if "mark" in table:
            place += table["mark"]
        if by_name:
            place = (table.groupby("recording").cumcount() + 1).astype(str) + ". " + place
        drawn = table.assign(place=place) if stacked else table.assign(place=place, panel=table["recording"])
        if self.series:
            drawn = drawn.assign(series=table[self.series], value=table[self.value])
            drawn = drawn[drawn["series"].isin(list(self.looks))]
        else:
            drawn = pandas.concat(drawn.assign(series=column, value=table[column]) for column in self.looks)
        missing = [name for name in each_rank(traces) if name not in set(drawn["recording"])]
        notes = [f"Nothing to show: {', '.join(missing)}"] if missing else []
        if drawn.empty:
            raise LabError(f"{self.title}: no row of the table for {', '.join(missing)}.")
        shares = "share" in (self.value if self.series else next(iter(self.looks)))
        unit_us, unit = (1.0, "share") if shares else style.time_unit(drawn["value"].max())
        own = self.axis or ("{} of the wall time" if shares else "sum of durations, {}")
        axis = ". ".join([own.format(unit), *map(style.escaped, notes)])
        figure = bars(drawn.assign(value=drawn["value"] / unit_us), self.looks, axis)
        if shares:
            figure.update_xaxes(tickformat=".1~%")
        figure.update_traces(textposition="inside" if stacked else "auto", insidetextanchor="middle", textangle=0)
        figure.update_layout(uniformtext=dict(minsize=9, mode="hide"))  # names that do not fit into their bars
        notes += [str(doubt.message) for doubt in doubts]
        return finish(figure, self.title, traces, table, notes)


def summary(traces: Traces) -> go.Figure:
    """The bottleneck of each recording, the reasons and the numbers: a table with a column for each recording."""
    cells = readable(joined(traces, Trace.summary)).set_index("recording").T.reset_index(names="")
    return finish(style.table_of(cells), "What bounds each recording (first remedy, costs: SIMULATED)", traces, cells)


def _steps(trace: Trace) -> pandas.DataFrame:
    table = trace.temporal(by="step")
    return table.assign(place="step " + table["step"].astype(str))


def _communication(trace: Trace) -> pandas.DataFrame:
    """With the parts of the wall time as they are drawn. A rank whose waits are unknown seems to send all the time."""
    table = trace.communication()
    waits = table["waited_us"].fillna(0 * table["communication_us"])
    own, sent = table["wall_us"] - table["communication_us"], table["communication_us"] - waits
    mark = (table["rank"] == table["straggler"]).map({True: "<br><b>straggler</b>", False: ""})
    return table.assign(own_us=own, sent_us=sent, waits_us=waits, mark=mark)


def _ranges(trace: Trace) -> pandas.DataFrame:
    table = trace.ranges()
    name, us = table["range"], table["us_per_step"].fillna(table["total_us"])
    table = table.assign(name=name, us=us, series=players(name))
    return table.sort_values("us", ascending=False, kind="stable")


def _remedies(trace: Trace) -> pandas.DataFrame:
    table = trace.remedies()
    half = table["times_faster_at_half"].map("{:.2f}x at half".format, na_action="ignore")
    return table.assign(text=half.fillna(table["times_faster_at_most"].map("{:.2f}x".format)))


def _achieved(trace: Trace) -> pandas.DataFrame:
    table = trace.achieved().sort_values("us", ascending=False, kind="stable")
    rates = table["tflop_per_s"].map("{:,.3g} TFLOP/s ".format, na_action="ignore").fillna("")
    rates += table["share_of_peak"].map("({:.0%}) ".format, na_action="ignore").fillna("")
    rates += table["gb_per_s"].map("{:,.3g} GB/s ".format, na_action="ignore").fillna("")
    rates += table["share_of_memory_peak"].map("({:.0%}) ".format, na_action="ignore").fillna("")
    return table.assign(text=rates, name=table["name"].str.removeprefix("aten::") + " " + table["inputs"])


VIEWS: dict[str, Callable[..., go.Figure]] = {
    "temporal": Bars(
        title="Where the wall time of the GPU went",
        table=Trace.temporal,
        looks=ACTIVITIES,
        series="part",
        axis="{} of the wall time (beyond 100%: kinds that ran at the same time)",
    ),
    "processor": Bars(
        title="Where a step's time went on the processor",
        table=Trace.processor,
        looks=PROCESSOR,
        series="kind",
        axis="{} of the steps",
    ),
    "summary": summary,
    "remedies": Bars(
        title="Largest possible speed-up if one cause disappears (for kernels: takes half its time): SIMULATED",
        table=_remedies,
        looks={"share_of_wall": ("", style.HOST, "")},
        place="cause",
    ),
    "steps": Bars(
        title="Where the time of each step went on the GPU",
        table=_steps,
        looks=ACTIVITIES,
        series="part",
        value="us",
        axis="{} from the step's first GPU activity to that of the next step",
        place="place",
    ),
    "idle": Bars(
        title="What the GPU waited for while no stream was busy",
        table=lambda trace: trace.idle().query("scope == 'device'"),
        looks=CAUSES,
        series="cause",
    ),
    "gaps": Bars(
        title="What the host did in the gaps, by name",
        table=lambda trace: most_time(trace).query("what == 'gap'"),
        looks=CAUSES,
        series="kind",
        value="us",
        place="name",
    ),
    "kernels": Bars(
        title="The kernels and memory operations that took most time",
        table=Trace.kernels,
        looks=ACTIVITIES,
        series="kind",
        value="total_us",
        place="name",
    ),
    "timeline": timeline,
    "communication": Bars(
        title="How long each rank waited for the others",
        table=_communication,
        looks=COMMUNICATION,
    ),
    "ranges": Bars(
        title="The ranges that took most of the host's time",
        table=_ranges,
        looks=LOOKS,
        series="series",
        value="us",
        axis="{} a step on the host, or in all where no step is marked",
        place="name",
    ),
    "operators": Bars(
        title="Operators and CUDA calls by their own time on the host",
        table=Trace.operators,
        looks=HOSTS,
        series="kind",
        value="self_us",
        axis="own time, {} in all",
        place="name",
    ),
    "achieved": Bars(
        title="The most expensive convolutions, matrix products and normalisations by shapes, and their rates",
        table=_achieved,
        looks={"us": ("", style.KERNEL, "")},
        axis="{}, all calls together (%: of the GPU's peak, where it is known)",
        place="name",
    ),
    "hta": hta,
}
