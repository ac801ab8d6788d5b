"""The lessons' figures: small multiples of lines, learning curves, a roofline, a ring, and the lab's models to move."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import numpy as np
import pandas
import plotly.express as px
import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor

from labcourse.solutions import rounding_outcomes
from labkit.measure.quality import GOAL, time_to_quality
from labkit.simulate import error_range
from labkit.simulate.measured_steps import error_text
from labkit.stamp import describe
from labtrace.errors import check_known
from labtrace.replay import Launch, play
from labtrace.replay.launch_queue import GAP_US, Timeline, replay_graph
from labtrace.show.style import EDGE, FAINT, HOST, KERNEL, PLAYERS, UNUSED, WALL, mark_simulated
from labtrace.show.widgets import WIDE, controlled, slider

AGAINST = {"images": ("pictures seen, of each domain", 1), "seconds": ("seconds", 1), "flops": ("TFLOP", 1e12)}
IN_WORDS = {"host_us": "the host's microseconds for a launch"}  # a column, on axes and read aloud
RANKS = 4  # in the ring
REGIONS = {  # of float16, as powers of two: where values are lost
    "flushed to zero": (-50, -25),
    "subnormal": (-25, -14),
    "overflow": (16, 30),
}
GRAPH_US = 20.0  # an example: the host's time for the single call that launches a graph
QUEUE_KERNELS, OVERLAP_KERNELS = 40, 12  # that the two figures play
ALONE_US = 10.0  # how long each kernel of the overlap takes if nothing else runs


def lines(table: pandas.DataFrame, x: str, y: str, color: str, title: str, **looks: Any) -> go.Figure:
    """Lines over a column of a table, optionally in several panels. The table itself is the text alternative.

    Args:
        table: a row for each point, without columns that the figure does not show.
        x, y, color: columns of the table: both axes, and the line that a point belongs to.
        title: of the figure, of measured times.
        looks: for `plotly.express.line`, for example ``facet_row="batch"``.
    """
    figure = px.line(table, x=x, y=y, color=color, title=title, symbol=color, markers=True, **looks)
    legend = dict(orientation="h", y=1.04, yanchor="bottom")  # in a narrow page there is no room beside the panels
    figure.update_layout(legend=legend, margin_t=130, title=dict(yref="container", y=1, yanchor="top", pad_t=28))
    words = table.round(3).to_html(border=0, index=False)
    return figure.update_layout(meta={"text": f"{title}: {y} over {x}.", "table": words})


def learning_figure(curves: pandas.DataFrame) -> go.Figure:
    """fg and bg of each run over the pictures seen: panels for each name, a line for each seed, the goal dashed.

    Args:
        curves: from `labcourse.study`.
    """
    looks = curves.melt(["name", "seed", "images"], list(GOAL), "score", "percent")
    title = f"Learning to make oranges<br><sub>{describe(curves.attrs['stamp'])}</sub>"
    panels = dict(facet_col="name", facet_row="score", height=560, labels={"images": "pictures seen"})
    figure = lines(looks, "images", "percent", "seed", title, **panels)
    for row, metric in enumerate(reversed(GOAL), start=1):  # rows count from below
        figure.add_hline(y=GOAL[metric], line=dict(color=WALL, dash="dash", width=1), row=row)
    figure.for_each_annotation(lambda note: note.update(text=re.sub("[ _]", "<br>", note.text.partition("=")[2])))
    figure.update_layout(legend=dict(orientation="v", x=1.1, yanchor="top"))  # on top are the panels' names
    figure.update_xaxes(title_text="").update_layout(xaxis_title_text="pictures seen")  # once: panels can be narrow
    told = []
    for name, runs in curves.groupby("name", sort=False):
        last = runs.groupby("seed").last()
        ranges = [f"{metric} {last[metric].min():.1f} to {last[metric].max():.1f} %" for metric in GOAL]
        told.append(f"{name} at {' and '.join(ranges)}")
    words = f"Over the pictures seen, the seeds end: {'; '.join(told)}."
    return figure.update_layout(margin_t=145, meta={"text": words})


def passes_figure(curves: pandas.DataFrame, against: str = "seconds") -> go.Figure:
    """When each run first met the goal at two looks in a row: a circle for each seed that did.

    Circles are spread vertically, so that equal times do not hide each other.

    Args:
        curves: from `labcourse.study`.
        against: "images", "seconds" or "flops".
    """
    check_known("against", against, AGAINST)
    label, unit = AGAINST[against]
    taken = (time_to_quality(curves)[against] / unit).unstack("seed")
    reached = {name: f"{name}<br>{times.count()} of {len(times)} seeds" for name, times in taken.iterrows()}
    runs = taken.rename(reached).stack(future_stack=True).rename(label).reset_index()
    title = f"When the goal was reached, a circle for each seed<br><sub>{describe(curves.attrs['stamp'])}</sub>"
    order = {"name": list(reached.values())}
    figure = px.strip(runs, x=label, y="name", hover_data=["seed"], title=title, category_orders=order)
    figure.update_traces(marker_size=9, jitter=1).update_xaxes(rangemode="tozero")
    figure.update_yaxes(title="", range=[-0.6, len(reached) - 0.4])
    told = (f"{name}: {times.min():.3g} to {times.max():.3g}" for name, times in taken.rename(reached).iterrows())
    words = f"Time to quality, in {label}. {'; '.join(told)}.".replace("<br>", ", ").replace(": nan to nan", "")
    return figure.update_layout(height=190 + 56 * len(reached), meta={"text": words})


def roofline_figure(costs: pandas.DataFrame, flops_per_s: float, bytes_per_s: float, title: str) -> go.Figure:
    """FLOP/s against FLOP per byte on logarithmic axes, a point for each network, under the roof of the two rates.

    Left of the bend memory is the limit, and right of it arithmetic is.

    Args:
        costs: flops, median_s and flop_per_byte of each network, as in notebook 08.
        flops_per_s, bytes_per_s: the highest rates of this device. See `labkit.measure.roofline`.
        title: of the figure.
    """
    table = pandas.DataFrame({"FLOP per byte moved at least": costs["flop_per_byte"]}).rename_axis("network")
    table["GFLOP/s"] = costs["flops"] / costs["median_s"] / 1e9
    x, y = table.columns
    look = dict(x=x, y=y, color="network", symbol="network", log_x=True, log_y=True)
    figure = px.scatter(table.reset_index(), title=f"{title}<br><sub>{describe(costs.attrs['stamp'])}</sub>", **look)
    ticks = dict(dtick="D2", tickformat="~g")  # 1, 2, 5, 10
    figure.update_traces(marker_size=13).update_xaxes(**ticks).update_yaxes(**ticks)
    bend = flops_per_s / bytes_per_s
    ends = np.array([min(*table[x], bend) / 2, bend, max(*table[x], bend) * 2])
    roof = np.minimum(ends * bytes_per_s, flops_per_s) / 1e9
    figure.add_scatter(x=ends, y=roof, mode="lines", name=f"the roof, bent at {bend:.1f}", line_color=WALL)
    shares = table[y] * 1e9 / np.minimum(table[x] * bytes_per_s, flops_per_s)
    told = ", ".join(f"{name} at {share:.0%} of it" for name, share in shares.items())
    words = f"{title}. The roof rises with {bytes_per_s / 1e9:.3g} GB/s up to {flops_per_s / 1e9:.3g} GFLOP/s: {told}."
    return figure.update_layout(height=440, meta={"text": words})


def memory_figure(events: Sequence[tuple[str, int]], title: str) -> go.Figure:
    """The memory of a step over its course, an area for each of labkit's ranges that made it.

    Args:
        events: from `labkit.simulate.memory_events`.
        title: of the figure.
    """
    held = pandas.DataFrame([{name: nbytes / 1e9} for name, nbytes in events]).fillna(0).cumsum()
    peak = int(held.sum(axis=1).idxmax())
    held = held.loc[:, held.max() > 0.01 * held.loc[peak].sum()]  # not what is too small to be seen
    shown = held.iloc[sorted({*range(0, len(held), len(held) // 300 + 1), peak})]
    look = dict(labels={"index": "tensors that came or went", "value": "GB", "variable": ""})
    figure = px.area(shown, title=title, **look).update_traces(line_width=0)
    at_peak = held.loc[peak].round(2)
    parts = ", ".join(f"{nbytes:g} {name}" for name, nbytes in at_peak[at_peak > 0].items())
    words = f"{title}: {at_peak.sum():.1f} GB at the peak. Of these GB are {parts}."
    return figure.update_layout(height=400, meta={"text": words})


def hosts_figure(times_faster: pandas.DataFrame, title: str) -> go.Figure:
    """How many times faster each step is, a bar each, with a slider for the host's time for a launch.

    Args:
        times_faster: a column for each step, a row for each host, by its microseconds a launch. SIMULATED. A bar that
            ends in the grey band, `labkit.simulate.error_range`, may be neither faster nor slower.
        title: of the figure.
    """
    error = error_range()
    table = times_faster.rename_axis("host_us").melt(var_name="step", value_name="times faster", ignore_index=False)
    look = dict(range_x=[0, 1.1 * max(error[1], table["times faster"].max())], labels={"step": ""} | IN_WORDS)
    moving = dict(animation_frame="host_us", title=f"{title}<br><sub>{error_text()}</sub>")
    figure = px.bar(table.reset_index(), x="times faster", y="step", orientation="h", **moving, **look)
    figure.update_layout(height=180 + 50 * len(times_faster.columns))
    figure.add_vrect(*error, fillcolor=UNUSED, opacity=0.4, layer="below", line_width=0)
    figure.add_vline(1, line=dict(color=WALL, dash="dash", width=1))
    text = f"{title}. Between {error[0]:g} and {error[1]:g} nothing is known: {error_text()}."
    figure.update_layout(meta={"text": text, "table": times_faster.round(2).to_html(border=0)})
    return mark_simulated(figure)


def ring_figure() -> go.Figure:
    """A ring's all-reduce, round by round: how many ranks' numbers each part has summed up, on each of four ranks.

    A bar is a part on a rank. In each round a rank sends one part to the next rank, which adds it in the first half of
    the rounds and replaces its own part in the second.
    """
    summands = [[1] * RANKS for _ in range(RANKS)]  # by rank and part
    rows = []
    for number in range(2 * RANKS - 1):
        for rank, parts in enumerate(summands):
            rows += [(number, f"rank {rank}", part, many) for part, many in zip("wxyz", parts, strict=True)]
        sent = [((rank - number) % RANKS, summands[rank][(rank - number) % RANKS]) for rank in range(RANKS)]
        for rank, (part, many) in enumerate(sent):
            after = summands[(rank + 1) % RANKS]
            after[part] = many if number >= RANKS - 1 else after[part] + many
    table = pandas.DataFrame(rows, columns=["round", "rank", "part", "ranks in the sum"])
    look = dict(barmode="group", range_y=[0, RANKS + 0.2], height=420)
    title = "A ring's all-reduce: add in turn, then pass on"
    moving = dict(color="part", animation_frame="round", title=title)
    figure = px.bar(table, x="rank", y="ranks in the sum", **moving, **look)
    words = (
        f"Each of {RANKS} ranks has {RANKS} parts. After {RANKS - 1} rounds of adding each rank has one complete sum, "
        "and after as many rounds of passing on all of them."
    )
    return figure.update_layout(meta={"text": words})


def scaling_figure(gradients: Mapping[str, Tensor], exponent: int = 0) -> go.Figure:
    """The sizes of gradients, multiplied by 2 to the power of `exponent`, in the range of float16.

    Args:
        gradients: by player, such as "generators": any shape, in float32. Zeros are left out.
        exponent: of the scale.
    """
    figure, words = go.Figure(), []
    powers = np.arange(-50, 31)
    for player, values in gradients.items():
        sizes = values[values != 0].abs().double().numpy() * 2.0**exponent
        shares = np.histogram(sizes, 2.0**powers)[0] / len(sizes)
        line = dict(shape="hvh", color=PLAYERS[player])
        figure.add_scatter(x=powers[:-1] + 0.5, y=shares, name=player, mode="lines", line=line)
        outcomes = rounding_outcomes(values, 2.0**exponent).items()
        words.append(f"{player}: " + ", ".join(f"{100 * share:.2g}% {fate}" for fate, share in outcomes))
    for name, (low, high) in REGIONS.items():
        figure.add_vrect(x0=low, x1=high, fillcolor=UNUSED, opacity=0.2 if name == "subnormal" else 0.45, line_width=0)
        place = dict(x=(low + high) / 2, y=1, yref="paper", yanchor="bottom", showarrow=False)
        figure.add_annotation(text=name.replace(" ", "<br>", 1), **place)
    figure.update_xaxes(title="size of a gradient after scaling: 2 to the", range=[powers[0], powers[-1]])
    figure.update_yaxes(title="share of a player's gradients", tickformat=".0%", rangemode="tozero")
    title = f"Gradients in float16, losses scaled by 2<sup>{exponent}</sup><br><sub>{'<br>'.join(words)}</sub>"
    told = f"Gradients in float16, losses scaled by 2 to the power of {exponent}. {'; '.join(words)}."
    return figure.update_layout(title=title, height=515, margin_t=180, meta={"text": told})


def scaling_widget(gradients: Mapping[str, Tensor]) -> ipywidgets.VBox:
    """`scaling_figure`, with a slider for the exponent."""
    exponent = ipywidgets.IntSlider(0, min=-10, max=32, description="scale: 2 to the", **WIDE)
    return controlled(functools.partial(scaling_figure, gradients), {"exponent": exponent})


def queue_figure(host_us: float = 10, kernel_us: float = 4, streams: int = 1, graph: bool = False) -> go.Figure:
    """The launch queue, SIMULATED: a timeline of host and GPU, and the length of the queue.

    Args:
        host_us: microseconds that a launch costs the host.
        kernel_us: microseconds that a kernel takes.
        streams: 1 or 2. Kernels go to the streams in turn and do not slow each other down, as if each needed no more
            than half of the GPU.
        graph: whether a single call launches all kernels.
    """
    launches = [Launch(f"kernel {i}", host_us, kernel_us, stream=i % streams) for i in range(QUEUE_KERNELS)]
    timeline = replay_graph(launches, GRAPH_US) if graph else play(launches)
    times, depth = timeline.queue_depth()
    launch_us = GRAPH_US / QUEUE_KERNELS if graph else host_us
    turn = streams * launch_us - GAP_US  # kernels as long as this let both keep pace
    bound = "host bound" if kernel_us < turn else "compute bound"
    waiting = f"at most {depth.max()} kernels wait" if depth.max() else "no kernel waits"
    titles = "Lines lead from launches to kernels", f"The queue: {waiting}"
    figure = make_subplots(2, shared_xaxes=True, row_heights=[0.65, 0.35], subplot_titles=titles)
    figure.update_annotations(x=0, xanchor="left", font_size=13)  # the right corner is the stamp's
    _add_lanes(figure, timeline)
    look = dict(line=dict(shape="hv", color=WALL, width=1), fill="tozeroy", fillcolor=FAINT, showlegend=False)
    figure.add_scatter(x=[0, *times], y=[0, *depth], mode="lines", **look, row=2, col=1)
    figure.update_yaxes(title="kernels", range=[0, max(5, 1.1 * depth.max())], row=2, col=1)
    figure.update_xaxes(title="microseconds", range=[0, timeline.wall], row=2, col=1)
    words = (
        f"SIMULATED. {QUEUE_KERNELS} kernels, {bound}: wall time {timeline.wall:.0f} microseconds, the GPU idle for "
        f"{timeline.idle_share:.0%} of it. At most {depth.max()} kernels wait in the queue; the last one starts "
        f"{timeline.kernel_start[-1] - timeline.host_end[-1]:.0f} microseconds after its launch."
    )
    title = f"SIMULATED launch queue: <b>{bound}</b><br>GPU idle {timeline.idle_share:.0%} of {timeline.wall:.0f} µs"
    legend = dict(orientation="h", y=-0.15, traceorder="normal")
    figure.update_layout(title=title, barmode="stack", height=520, legend=legend, meta={"text": words})
    return mark_simulated(figure)


def _add_lanes(figure: go.Figure, timeline: Timeline) -> None:
    """The host's launches in lane 0, the streams' kernels in lanes 1 and 2, and lines from the ones to the others."""
    height, lane = 0.6, timeline.stream + 1
    nowhere = np.full(len(lane), np.nan)  # ends a line
    figure.add_scatter(
        x=np.stack([timeline.host_end, timeline.kernel_start, nowhere], axis=1).ravel(),
        y=np.stack([0 * lane + height / 2, lane - height / 2, nowhere], axis=1).ravel(),
        **dict(mode="lines", line=dict(color=WALL, width=1), hoverinfo="skip", showlegend=False, row=1, col=1),
    )
    for y, start, end, colour, name in (
        (0 * lane, timeline.host_start, timeline.host_end, HOST, "host launches"),
        (lane, timeline.kernel_start, timeline.kernel_end, KERNEL, "stream runs a kernel"),
    ):
        look = dict(orientation="h", width=height, marker=dict(color=colour, line=EDGE))
        figure.add_bar(y=y, base=start, x=end - start, name=name, **look, row=1, col=1)
    names = ["host", *(f"stream {stream}" for stream in range(1, lane.max() + 1))]
    ticks = dict(tickvals=list(range(len(names))), ticktext=names, showgrid=False, zeroline=False)
    figure.update_yaxes(range=[lane.max() + 0.5, -0.5], **ticks, row=1, col=1)


def queue_widget() -> ipywidgets.VBox:
    """`queue_figure`, with controls for the cost of a launch, the length of a kernel, a second stream and a graph."""
    toggles = functools.partial(ipywidgets.ToggleButtons, layout={"margin": "4px"})
    controls = {
        "host_us": slider("host, µs a launch", 10, 2, 20, 1),
        "kernel_us": slider("kernel, µs", 4, 1, 30, 1),
        "streams": toggles(options=[("one stream", 1), ("two streams", 2)]),
        "graph": toggles(options=[("launch by launch", False), ("as a CUDA graph", True)]),
    }
    return controlled(queue_figure, controls)


def overlap_figure(share: float = 0.6) -> go.Figure:
    """The same kernels on one stream and on two, SIMULATED: the sum of their durations is not the time they take.

    Each kernel takes 10 microseconds if nothing else runs, and then fills `share` (0 to 1) of the multiprocessors. All
    are launched already, and follow one another without pauses.
    """
    figure, played = go.Figure(), []
    for streams, bottom in ((1, 1.2), (2, 0.0)):
        placed = [streams * i // OVERLAP_KERNELS for i in range(OVERLAP_KERNELS)]
        timeline = play([Launch("kernel", 0, ALONE_US, stream=stream, share=share) for stream in placed], gap_us=0)
        took = timeline.kernel_end - timeline.kernel_start
        gets = share * ALONE_US / took  # of the multiprocessors
        bars = dict(orientation="h", hoverinfo="skip")
        figure.add_bar(y=[bottom + 0.5], x=[timeline.wall], width=1, marker_color="#DDDDDD", **bars)  # unused
        kernels = dict(color=KERNEL, line=EDGE)
        y = bottom + (timeline.stream + 0.5) * gets
        figure.add_bar(y=y, width=gets, base=timeline.kernel_start, x=took, marker=kernels, **bars)
        played.append(timeline)
    one, two = played
    sums, walls = two.kernel_sum / one.kernel_sum, two.busy / one.busy
    figure.update_xaxes(title="microseconds; a bar's height is the share of the GPU that a kernel gets")
    figure.update_yaxes(tickvals=[1.7, 0.5], ticktext=["one stream", "two streams"], showgrid=False)
    words = (
        f"SIMULATED. {OVERLAP_KERNELS} kernels of {ALONE_US:g} microseconds, each filling {share:.0%} of the "
        f"multiprocessors. On one stream the sum of their durations and the wall time are both {one.busy:.0f} "
        f"microseconds. On two streams the sum is {two.kernel_sum:.0f} microseconds, {sums:.2f} times as much, and "
        f"the wall time, which is the union of all kernels, {two.busy:.0f}, {walls:.2f} times as much."
    )
    title = f"SIMULATED overlap of two streams:<br><b>sum x {sums:.2f}, wall time x {walls:.2f}</b>"
    figure.update_layout(title=title, barmode="overlay", height=420, showlegend=False, meta={"text": words})
    return mark_simulated(figure)


def overlap_widget() -> ipywidgets.VBox:
    """`overlap_figure`, with a control for the share of the multiprocessors that each kernel fills."""
    return controlled(overlap_figure, {"share": slider("share of the GPU", 0.6, 0.1, 1, 0.05)})
