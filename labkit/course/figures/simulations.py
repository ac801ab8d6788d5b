"""SIMULATED timelines to play with: the launch queue between host and GPU, and two streams that share one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ipywidgets
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.show.style import FAINT, HOST, KERNEL, UNUSED, WALL, mark_simulated
from labkit.show.widgets import controlled, slider
from labkit.simulate import GAP_US, Launch, Timeline, play, replay_graph

GRAPH_US = 20.0  # an example: the host's time for the single call that launches a graph
DURATIONS_US = np.arange(1.0, 31.0)  # of kernels: the slider's, and those the queue's curve goes through
KERNELS, OVERLAPPING = 40, 12  # how many are played in the queue, and in the overlap
ALONE_US = 10.0  # how long each kernel of the overlap takes if nothing else runs


def queue_figure(host_us: float = 10, kernel_us: float = 8, streams: int = 1, graph: bool = False) -> go.Figure:
    """The launch queue, SIMULATED: a timeline of host and GPU, the length of the queue, and which side is the limit.

    Args:
        host_us: microseconds that a launch costs the host.
        kernel_us: microseconds that a kernel takes.
        streams: 1 or 2. Kernels go to the streams in turn and do not slow each other down, as if each needed no more
            than half of the GPU.
        graph: whether a single call launches all kernels.
    """
    timeline = _played(host_us, kernel_us, streams, graph)
    depth = timeline.queue_depth()[1].max()
    turn = streams * (GRAPH_US / KERNELS if graph else host_us) - GAP_US  # kernels as long as this let both keep pace
    bound = "host bound" if kernel_us < turn else "compute bound"
    titles = (
        "Lines lead from launches to kernels" + ("; two kernels fit the GPU at a time" if streams > 1 else ""),
        f"The queue, kernels launched but not started: {f'at most {depth}' if depth else 'always empty'}",
        "Each stream's time",
        f"Host bound below {turn:g} µs" if turn > 0 else "Always compute bound",
    )
    specs = [[{"colspan": 2}, None], [{"colspan": 2}, None], [{}, {}]]
    heights = [0.4, 0.22, 0.38]
    spacing = dict(vertical_spacing=0.15, horizontal_spacing=0.16)  # room for titles on narrow screens, too
    figure = make_subplots(3, 2, specs=specs, row_heights=heights, subplot_titles=titles, **spacing)
    _titles_left(figure)
    _add_lanes(figure, timeline)
    _add_queue(figure, timeline)
    _add_shares(figure, timeline)
    walls = [_played(host_us, duration, streams, graph).wall for duration in DURATIONS_US]
    _add_turning_curve(figure, walls, turn, (kernel_us, timeline.wall))
    for row in (1, 2):
        figure.update_xaxes(title="microseconds", range=[0, timeline.wall], row=row, col=1)
    figure.update_layout(
        title=f"SIMULATED launch queue: <b>{bound}</b>, GPU idle {timeline.idle_share:.0%} of {timeline.wall:.0f} µs",
        barmode="stack",
        height=720,
        legend=dict(orientation="h", y=-0.1, traceorder="normal"),
        meta={"text": _queue_in_words(timeline, bound, turn)},
    )
    return mark_simulated(figure)


def overlap_figure(share: float = 0.6) -> go.Figure:
    """The same kernels on one stream and on two, SIMULATED: the sum of their durations is not the time they take.

    Each kernel takes 10 microseconds if nothing else runs, and then fills `share` (0 to 1) of the multiprocessors.
    """
    one, two = _on_one_and_two_streams(share, OVERLAPPING)
    sums, walls = two.kernel_sum / one.kernel_sum, two.busy / one.busy
    titles = (
        f"The same {OVERLAPPING} kernels: a bar's height is the share of the GPU it gets",
        "Sum, and wall (union)",
        "Two streams, over one",
    )
    specs = [[{"colspan": 2}, None], [{}, {}]]
    figure = make_subplots(2, 2, specs=specs, vertical_spacing=0.2, horizontal_spacing=0.16, subplot_titles=titles)
    _titles_left(figure)
    _add_gpu(figure, one, share, bottom=1.2)
    _add_gpu(figure, two, share, bottom=0)
    figure.update_xaxes(title="microseconds", range=[0, one.wall], row=1, col=1)
    figure.update_yaxes(tickvals=[1.7, 0.5], ticktext=["one stream", "two streams"], showgrid=False, row=1, col=1)
    _add_totals(figure, one, two)
    _add_share_curves(figure, share, (sums, walls))
    figure.update_layout(
        title=f"SIMULATED overlap: on two streams <b>sum x {sums:.2f}, wall time x {walls:.2f}</b>",
        barmode="overlay",
        height=600,
        showlegend=False,
        meta={
            "text": f"SIMULATED. {OVERLAPPING} kernels of {ALONE_US:g} microseconds, each filling {share:.0%} of the "
            f"multiprocessors. On one stream the sum of their durations and the wall time are both {one.busy:.0f} "
            f"microseconds. On two streams the sum is {two.kernel_sum:.0f} microseconds, {sums:.2f} times as much, and "
            f"the wall time, which is the union of all kernels, {two.busy:.0f}, {walls:.2f} times as much."
        },
    )
    return mark_simulated(figure)


def queue_widget() -> ipywidgets.VBox:
    """`queue_figure`, with controls for the cost of a launch, the length of a kernel, a second stream and a graph."""
    toggles = ipywidgets.ToggleButtons
    controls = {
        "host_us": slider("host, µs a launch", 10, 2, 20, 1),
        "kernel_us": slider("kernel, µs", 8, DURATIONS_US[0], DURATIONS_US[-1], 1),
        "streams": toggles(options=[("one stream", 1), ("two streams", 2)]),
        "graph": toggles(options=[("launch by launch", False), ("as a CUDA graph", True)]),
    }
    return controlled(queue_figure, controls)


def overlap_widget() -> ipywidgets.VBox:
    """`overlap_figure`, with a control for the share of the multiprocessors that each kernel fills."""
    return controlled(overlap_figure, {"share": slider("share of the GPU", 0.6, 0.1, 1, 0.05)})


def _titles_left(figure: go.Figure) -> None:
    """Leaves the right corner of each panel to the stamp."""
    for title, axis in zip(figure.layout.annotations, figure.select_xaxes(), strict=True):
        title.update(x=axis.domain[0], xanchor="left", font_size=13)


def _played(host_us: float, kernel_us: float, streams: int, graph: bool) -> Timeline:
    launches = [Launch(f"kernel {i}", host_us, kernel_us, stream=i % streams) for i in range(KERNELS)]
    return replay_graph(launches, GRAPH_US) if graph else play(launches)


def _on_one_and_two_streams(share: float, kernels: int) -> tuple[Timeline, Timeline]:
    """All kernels on one stream, and half of them on each of two. They are launched already, and without pauses."""
    two = [Launch("kernel", 0, ALONE_US, stream=2 * i // kernels, share=share) for i in range(kernels)]
    one = [replace(launch, stream=0) for launch in two]
    return play(one, gap_us=0), play(two, gap_us=0)


def _add_lanes(figure: go.Figure, timeline: Timeline) -> None:
    """The host's launches in lane 0, the streams' kernels in lanes 1 and 2, and lines from the ones to the others."""
    place, height = dict(row=1, col=1), 0.6
    lane = timeline.stream + 1
    nowhere = np.full(len(lane), np.nan)  # ends a line
    figure.add_scatter(
        x=np.stack([timeline.host_end, timeline.kernel_start, nowhere], axis=1).ravel(),
        y=np.stack([0 * lane + height / 2, lane - height / 2, nowhere], axis=1).ravel(),
        **dict(mode="lines", line=dict(color=UNUSED, width=1), hoverinfo="skip", showlegend=False, **place),
    )
    times = zip(timeline.kernel_start, timeline.launch_delays, strict=True)
    ran = [
        f"kernel {i} starts at {start:.0f} µs, {delay:.0f} µs after its launch"
        for i, (start, delay) in enumerate(times)
    ]
    called = [f"launch {i} is done at {end:.0f} µs" for i, end in enumerate(timeline.host_end)]
    for y, start, end, hover, colour, name in (
        (0 * lane, timeline.host_start, timeline.host_end, called, HOST, "host launches"),
        (lane, timeline.kernel_start, timeline.kernel_end, ran, KERNEL, "stream runs a kernel"),
    ):
        look = dict(orientation="h", width=height, marker=dict(color=colour, line=dict(color="white", width=1)))
        figure.add_bar(y=y, base=start, x=end - start, hovertext=hover, hoverinfo="text", name=name, **look, **place)
    names = ["host", *(f"stream {stream}" for stream in range(1, lane.max() + 1))]
    ticks = dict(tickvals=list(range(len(names))), ticktext=names)
    figure.update_yaxes(range=[lane.max() + 0.5, -0.5], showgrid=False, zeroline=False, **ticks, **place)


def _add_queue(figure: go.Figure, timeline: Timeline) -> None:
    times, depth = timeline.queue_depth()
    look = dict(line=dict(shape="hv", color=WALL, width=1), fill="tozeroy", fillcolor=FAINT)
    hover = "from %{x:.0f} µs on, %{y} kernels wait<extra></extra>"
    x, y = np.concatenate([[0], times]), np.concatenate([[0], depth])
    figure.add_scatter(x=x, y=y, mode="lines", **look, hovertemplate=hover, showlegend=False, row=2, col=1)
    figure.update_yaxes(title="kernels", range=[0, max(5, 1.1 * depth.max())], row=2, col=1)


def _add_shares(figure: go.Figure, timeline: Timeline) -> None:
    """A bar for each stream. The rest to 100% lies before its first kernel and after its last one."""
    streams = sorted(set(timeline.stream))
    took, idle = timeline.kernel_end - timeline.kernel_start, [timeline.idle(stream) for stream in streams]
    names = [f"stream {stream + 1}" for stream in streams]
    for name, microseconds, colour, pattern in (
        ("runs a kernel", [took[timeline.stream == stream].sum() for stream in streams], KERNEL, ""),
        ("waits for the host", [gaps["host_wait"] for gaps in idle], HOST, "/"),
        ("pauses between kernels", [gaps["kernel_wait"] for gaps in idle], UNUSED, ""),
    ):
        look = dict(marker=dict(color=colour, pattern=dict(shape=pattern, fgcolor="white")), orientation="h")
        hover = f"%{{y}} {name}: %{{x:.0%}} of the wall time<extra></extra>"
        x, in_legend = np.array(microseconds) / timeline.wall, colour != KERNEL
        named = dict(name=f"stream {name}", showlegend=in_legend, hovertemplate=hover)
        figure.add_bar(y=names, x=x, **look, **named, row=3, col=1)
    figure.update_xaxes(title="share of the wall time", tickformat=".0%", range=[0, 1], row=3, col=1)
    figure.update_yaxes(autorange="reversed", row=3, col=1)


def _add_turning_curve(figure: go.Figure, walls: Sequence[float], turn: float, here: tuple[float, float]) -> None:
    """Wall time over the kernels' duration: flat while the host is the limit, rising from the turning point on."""
    place = dict(row=3, col=2)
    hover = "kernels of %{x:g} µs: %{y:.0f} µs in all<extra></extra>"
    figure.add_scatter(x=DURATIONS_US, y=walls, line_color=WALL, hovertemplate=hover, showlegend=False, **place)
    look = dict(mode="lines", line=dict(color=HOST, dash="dash"), name="host bound turns compute bound")
    figure.add_scatter(x=[turn, turn], y=[0, max(walls)], hoverinfo="skip", **look, **place)
    _add_here(figure, [here[0]], [here[1]], hover, place)
    figure.update_xaxes(title="one kernel, µs", range=[0, DURATIONS_US[-1]], **place)
    figure.update_yaxes(title="wall time, µs", rangemode="tozero", **place)


def _add_here(figure: go.Figure, x: list[float], y: list[float], hover: str, place: dict[str, int]) -> None:
    marker = dict(color="white", size=11, symbol="diamond", line=dict(color=WALL, width=3))
    figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name="you are here", hovertemplate=hover, **place)


def _add_gpu(figure: go.Figure, times: Timeline, share: float, bottom: float) -> None:
    """All multiprocessors, from `bottom` to `bottom` + 1, and on them the kernels, as high as the share they get."""
    took = times.kernel_end - times.kernel_start
    gets = share * ALONE_US / took
    hover = [f"{100 * got:.0f}% of the multiprocessors for {time:.1f} µs" for got, time in zip(gets, took, strict=True)]
    bars = dict(orientation="h", hoverinfo="text", row=1, col=1)
    figure.add_bar(y=[bottom + 0.5], x=[times.wall], width=1, hovertext="unused", marker_color="#DDDDDD", **bars)
    marker = dict(color=KERNEL, line=dict(color="white", width=1.5))
    y = bottom + (times.stream + 0.5) * gets
    figure.add_bar(y=y, width=gets, base=times.kernel_start, x=took, hovertext=hover, marker=marker, **bars)


def _add_totals(figure: go.Figure, one: Timeline, two: Timeline) -> None:
    names = [f"{total}, {streams}" for total in ("sum", "wall") for streams in ("one stream", "two streams")]
    totals = [one.kernel_sum, two.kernel_sum, one.busy, two.busy]
    look = dict(marker_color=[KERNEL, KERNEL, WALL, WALL], orientation="h", texttemplate="%{x:.0f}")
    hover = "%{y}: %{x:.0f} µs<extra></extra>"
    figure.add_bar(y=names, x=totals, **look, hovertemplate=hover, row=2, col=1)
    figure.update_xaxes(title="microseconds", range=[0, 2.1 * one.wall], row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=2, col=1)


def _add_share_curves(figure: go.Figure, share: float, here: tuple[float, float]) -> None:
    """Sum and wall time, each over that of one stream, for every share that a kernel may fill."""
    place = dict(row=2, col=2)
    shares = np.linspace(0, 1, 21)
    runs = [_on_one_and_two_streams(each, kernels=2) for each in shares]
    for name, colour, ratios in (
        ("sum", KERNEL, [two.kernel_sum / one.kernel_sum for one, two in runs]),
        ("wall time", WALL, [two.busy / one.busy for one, two in runs]),
    ):
        hover = f"{name} x %{{y:.2f}} if a kernel fills %{{x:.0%}}<extra></extra>"
        figure.add_scatter(x=shares, y=ratios, mode="lines", line_color=colour, hovertemplate=hover, **place)
        figure.add_annotation(x=0.02, y=ratios[0], text=name, showarrow=False, xanchor="left", yshift=10, **place)
    _add_here(figure, [share, share], list(here), "you are here: x %{y:.2f}<extra></extra>", place)
    figure.update_xaxes(title="share of the multiprocessors a kernel fills", tickformat=".0%", range=[0, 1.03], **place)
    figure.update_yaxes(title="times one stream's", range=[0, 2.2], **place)


def _queue_in_words(timeline: Timeline, bound: str, turn: float) -> str:
    idle = {f"stream {stream + 1}": timeline.idle(stream) for stream in sorted(set(timeline.stream))}
    waits = "; ".join(
        f"{stream} waits for the host {gaps['host_wait']:.0f} microseconds and pauses {gaps['kernel_wait']:.0f}"
        for stream, gaps in idle.items()
    )
    return (
        f"SIMULATED. {len(timeline.stream)} kernels, {bound}: wall time {timeline.wall:.0f} microseconds, the GPU idle "
        f"for {timeline.idle_share:.0%} of it. Between kernels, {waits}. At most {timeline.queue_depth()[1].max()} "
        f"kernels wait in the queue; the last one starts {timeline.launch_delays[-1]:.0f} microseconds after its "
        f"launch. Host and GPU keep pace with kernels of {max(turn, 0):g} microseconds."
    )
