"""The course paper's Figures 2 to 8, drawn again from the tables of Holistic Trace Analysis (HTA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas
import plotly.graph_objects as go

from labtrace.errors import check_known
from labtrace.show.bars import Looks, Traces, bars, finish
from labtrace.show.style import BY_KIND, EDGE, HOST, KERNEL, UNUSED, panels

# By the paper's number: the question that a figure answers, the mistake that it invites, and what it draws of HTA's
# table. The cutoffs are the paper's, and HTA's own.
SHARES: dict[int, tuple[Any, ...]] = {
    2: ("which copies and memsets take time?", "it is the largest part of very little",
        lambda table: table.query("kernel_type == 'MEMORY'").set_index("name")["sum (us)"]),
    3: ("what does the GPU do while it is busy?", "a GPU that is mostly idle is not bound by compute",
        lambda table: table.set_index("kernel_type")["sum"]),
    7: ("how does the wall time divide?", "an idle GPU is not slow: it waits",
        lambda table: table[["idle_time(us)", "compute_time(us)", "non_compute_time(us)"]].iloc[0]),
    8: ("why does each stream wait?", "streams do not add up to the GPU",
        lambda table: table.groupby("idle_category")["idle_time"].sum()),
}  # fmt: skip
LAUNCHES: dict[int, tuple[Any, ...]] = {
    4: ("which kernels wait long after a launch?", "the GPU was busy meanwhile", "launch_delay", "launch_delay > 100"),
    5: ("which calls take long?", "the host was blocked, not slow", "cpu_duration", "cpu_duration > 50"),
    6: ("which calls are longer than their kernels?", "only many in a row make the GPU wait", "cpu_duration",
        "gpu_duration < cpu_duration <= 50"),
}  # fmt: skip
LOOKS: Looks = {
    **dict.fromkeys(("COMPUTATION", "compute_time(us)"), ("compute", KERNEL, "")),
    **dict.fromkeys(("MEMORY", "non_compute_time(us)"), ("copies and memsets", BY_KIND["memory"], "")),
    "idle_time(us)": ("idle", UNUSED, ""),
    "host_wait": ("host_wait", HOST, "/"),
    "kernel_wait": ("kernel_wait", UNUSED, ""),
    "other": ("other", "#DDDDDD", "x"),
    "Memcpy DtoD (Device -> Device)": ("Memcpy DtoD", BY_KIND["memory"], ""),
    "Memset (Device)": ("Memset", UNUSED, "/"),
    "Memcpy HtoD (Pinned -> Device)": ("Memcpy HtoD", HOST, ""),
}


def figure_again(number: int, tables: Mapping[str, pandas.DataFrame], traces: Traces) -> go.Figure:
    """A figure of the course paper from HTA's table for it, of one recording or several.

    Args:
        number: 2 to 8, the paper's.
        tables: by the recording's name what HTA's function returned: of `get_gpu_kernel_breakdown` the second table (2)
            or the first (3), of `get_cuda_kernel_launch_stats` a rank's (4 to 6), that of `get_temporal_breakdown` (7)
            or the first of `get_idle_time_breakdown` (8).
        traces: the recordings by the same names, for their stamps.
    """
    check_known("number", number, [*SHARES, *LAUNCHES])
    question, mistake, *what = (SHARES | LAUNCHES)[number]
    title = f"Figure {number}: {question} Beware: {mistake}"
    if number in SHARES:
        us = pandas.concat({name: what[0](table) for name, table in tables.items()}).rename_axis(["place", "series"])
        rows = us.rename("us").reset_index()
        rows["value"] = rows["us"] / rows.groupby("place")["us"].transform("sum")
        rows = rows.assign(text=rows["value"].map("{:.1%}".format), recording=rows["place"], part=rows["series"])
        figure = bars(rows, LOOKS, "share").update_xaxes(tickformat=".0%").update_traces(textangle=0)
        return finish(figure, title, traces, rows.assign(share=rows["value"]))
    column, condition = what
    drawn = {name: table.query(condition)[column] for name, table in tables.items()}
    counts = pandas.DataFrame(
        {"recording": drawn.keys(), "drawn": map(len, drawn.values()), "launches": map(len, tables.values())}
    )
    counts["share_drawn"] = counts["drawn"] / counts["launches"]
    figure = panels(
        {f"{one.recording}: {one.drawn:,} of {one.launches:,} launches": 150 for one in counts.itertuples()}
    )
    look = dict(marker=dict(color=HOST if column == "cpu_duration" else KERNEL, line=EDGE), showlegend=False)
    for row, us in enumerate(drawn.values(), start=1):
        figure.add_histogram(x=us, nbinsx=60, row=row, col=1, **look)
    figure.update_yaxes(title="launches").update_xaxes(matches=None, showticklabels=True, tickformat=",")
    figure.update_xaxes(title=f"{column}, µs", row=len(tables), col=1)
    return finish(figure, title, traces, counts)
