"""Figures of traces hold the tables' numbers and tell them in words; the explorer redraws one figure in place."""

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic_trace import SyntheticTrace

from labkit.errors import LabkitError
from labkit.show import explorer, traces
from labkit.show.explorer import MOST_BARS, VIEWS, thin, timeline_figure, trace_explorer
from labkit.show.recordings import thin_steps
from labkit.traces.reading import TraceError
from labkit.traces.tables import Trace

STAMP = {"device": "NVIDIA Imaginary", "torch": "2.11.0"}
FIGURES = [view for view in VIEWS.values() if view is not timeline_figure]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """A function that saves a synthetic trace and opens it."""
    return lambda synthetic: Trace(synthetic.save(tmp_path_factory.mktemp("trace") / "trace.json"))


@pytest.fixture(scope="module")
def two_streams(load):
    """Stream 7 busy 100-200, 210-300 and, copying, 500-540; stream 20 250-350 and 600-700: wall 600, idle 220."""
    trace = SyntheticTrace(labkit=STAMP)
    trace.range("ProfilerStep#3", 0, 460)
    trace.range("labkit: generators forward", 10, 390)
    trace.launch(50, 100, 100, name="void gemm<4, float>(int)")
    trace.launch(60, 210, 90, name="relu")
    trace.launch(70, 250, 100, stream=20)
    trace.range("labkit: data", 465, 30)
    trace.copy(470, 500, 40)
    trace.operator("aten::mul", 480, 110)
    trace.launch(520, 600, 100, call_duration=60, stream=20)
    return load(trace)


@pytest.fixture(scope="module")
def one_kernel(load):
    trace = SyntheticTrace()
    trace.launch(0, 10, 90)
    return load(trace)


@pytest.fixture(scope="module")
def on_a_cpu(load):
    trace = SyntheticTrace(labkit={"device": "a CPU", "torch": "2.15.0"})
    trace.operator("aten::conv2d", 0, 30)
    return load(trace)


def bars(figure, axis="x"):
    """The lengths of the bars in one panel, by the names of legend and bar."""
    return {
        (bar.name, y): x for bar in figure.data if (bar.xaxis or "x") == axis for y, x in zip(bar.y, bar.x, strict=True)
    }


@pytest.mark.parametrize("draw", FIGURES)
def test_every_figure_says_what_it_is_and_what_was_measured_on_what(draw, two_streams, one_kernel):
    figure = draw({"two": two_streams, "one": one_kernel})
    assert type(figure) is go.Figure
    stamps = "two: NVIDIA Imaginary, torch 2.11.0; one: not recorded by labkit"
    title, stamp = figure.layout.title.text.removesuffix("</sub>").split("<br><sub>")
    assert title and stamp == stamps
    text = figure.layout.meta["text"]
    assert text.startswith(title) and text.endswith(f"Recorded on: {stamps}.")
    assert "nan" not in text and "two" in text and "one" in text
    for bar in figure.data:
        assert bar.hovertemplate or all(bar.hovertext)
    described = [axis.title.text for axis in figure.select_xaxes()] + [note.text for note in figure.layout.annotations]
    assert any(described)


def test_temporal_shares_are_of_the_wall_time(two_streams, one_kernel):
    figure = traces.temporal_figure({"two": two_streams, "one": one_kernel})
    shown = bars(figure)
    assert shown["idle", "two"] == pytest.approx(220 / 600) and shown["idle", "one"] == 0
    assert shown["compute", "two"] == pytest.approx(340 / 600) and shown["memory", "two"] == pytest.approx(40 / 600)
    assert "340.0 µs, 89.5% of the busy time" in figure.data[1].hovertext[0]
    assert "two, wall time 600.0 µs: idle 36.7% (220.0 µs), compute 56.7%" in figure.layout.meta["text"]
    assert figure.layout.barmode == "stack" and "100%" not in figure.layout.xaxis.title.text


def test_kinds_at_the_same_time_are_said_to_pass_100_percent(load):
    trace = SyntheticTrace()
    trace.launch(0, 10, 90)
    trace.copy(5, 10, 90, stream=20)
    figure = traces.temporal_figure(load(trace))
    assert "beyond 100%: kinds at the same time" in figure.layout.xaxis.title.text
    assert figure.layout.xaxis.range[1] == pytest.approx(2) and "more than 100%" in figure.layout.meta["text"]


@pytest.mark.parametrize("draw", FIGURES)
def test_a_share_of_nothing_is_unknown(draw, load):
    trace = SyntheticTrace()
    trace.launch(0, 5, 0)
    assert "nan" not in draw(load(trace)).layout.meta["text"]


def test_idle_is_the_device_s(two_streams):
    figure = traces.idle_figure({"two": two_streams})
    shown = {bar.name.partition("(")[2][:-1]: bar.x[0] for bar in figure.data}
    assert shown == pytest.approx({"host_wait": 0.25, "kernel_wait": 10 / 600, "other": 0.1, "unknown": 0})
    assert "host_wait 25.0% (150.0 µs)" in figure.layout.meta["text"]
    assert "68.2% of the idle time" in figure.data[0].hovertext[0]


def test_kernels_by_kind_and_by_name(two_streams):
    kinds = traces.kernel_kinds_figure({"two": two_streams})
    assert bars(kinds)["compute", "two"] == 0.39 and bars(kinds, "x2")["compute", "two"] == 4
    assert "communication: none" in kinds.layout.meta["text"]
    figure = traces.top_kernels_figure({"two": two_streams}, top=2)
    assert bars(figure) == {("compute", 0): 0.2, ("compute", 1): 0.1}
    assert figure.layout.yaxis.ticktext == ("gemm", "gemm&lt;4, float&gt;(int)")
    assert "first 2" in figure.layout.title.text and "gemm 0.20 (52.6%)" in figure.layout.meta["text"]
    both = traces.top_kernels_figure({"a": two_streams, "b": two_streams}, top=1)
    assert [bar.name for bar in both.data] == ["a: compute", "b: compute"]
    assert len({bar.marker.pattern.shape for bar in both.data}) == 2, "colours mean kinds, so hatching tells recordings"


def test_launches_put_kernels_beside_time(two_streams):
    figure = traces.launches_figure({"two": two_streams}, delay_cutoff=150)
    shown = [next(share for (name, y), share in bars(figure).items() if of in name and "150" in y) for of in
             ("kernels", "GPU time", "wall")]  # fmt: skip
    assert shown == pytest.approx([1 / 5, 100 / 430, 100 / 600])
    assert "delay over 150 µs: 1 of the kernels (20.0%), 100.0 µs, 23.3% of the GPU time" in figure.layout.meta["text"]


def test_launches_that_cannot_be_known_are_no_bars_of_length_zero(load):
    trace = SyntheticTrace()
    trace.kernel(0, 10)
    figure = traces.launches_figure(load(trace))
    assert np.isnan(figure.data[0].x[0]) and figure.data[0].x[3] == 1
    assert "cannot be known" in figure.data[0].hovertext[0] and "cannot be known" in figure.layout.meta["text"]


def test_the_queue_is_drawn_as_steps(two_streams):
    figure = traces.trace_queue_figure({"two": two_streams})
    line = figure.data[0]
    assert line.line.shape == "hv"
    assert list(line.x) == two_streams.queue()["time_us"].tolist()
    assert list(line.y) == two_streams.queue()["waiting"].tolist()
    assert "at most 3" in figure.layout.meta["text"] and "drawn with" not in figure.layout.xaxis.title.text


def test_a_thinned_queue_keeps_its_maximum(load):
    trace = SyntheticTrace()
    for number in range(1500):
        trace.launch(number * 10, number * 10 + 5, 4)
    trace.launch(7000.5, 7005.5, 0.1)
    trace = load(trace)
    figure = traces.trace_queue_figure(trace)
    assert len(figure.data[0].x) <= 2000 < len(trace.queue()) and max(figure.data[0].y) == 2
    assert "2,000 points" in figure.layout.xaxis.title.text
    random = np.random.default_rng(0).integers(0, 1000, 12345)
    shown = thin_steps(random)
    assert len(shown) <= 2000 and random[shown].max() == random.max() and random[shown].min() == random.min()
    assert (np.diff(shown) > 0).all()


def test_concurrency_has_union_beside_sum(two_streams):
    figure = traces.concurrency_figure({"two": two_streams})
    assert [bar.x[0] for bar in figure.data[:3]] == pytest.approx([220 / 600, 330 / 600, 50 / 600])
    assert bars(figure, "x2") == {("sum of durations", "two, sum"): 0.43, ("union", "two, union"): 0.38}
    assert "union 380.0 µs, sum 430.0 µs; 0 streams busy 36.7%" in figure.layout.meta["text"]
    within = traces.concurrency_figure(two_streams, within="generators forward")
    assert "generators forward" in within.layout.title.text and "union 240.0 µs" in within.layout.meta["text"]
    with pytest.raises(LabkitError, match="did you mean 'generators forward'"):
        traces.concurrency_figure(two_streams, within="generator forward")


def test_ranks_are_drawn_one_by_one(tmp_path):
    for rank in (0, 1):
        trace = SyntheticTrace(rank=rank)
        trace.launch(0, 10, 90)
        trace.save(tmp_path / f"{rank}.json")
    figure = traces.temporal_figure({"run": Trace(tmp_path)})
    assert list(figure.data[0].y) == ["run, rank 0", "run, rank 1"]


def test_the_timeline_has_host_and_streams_as_lanes(two_streams):
    figure = timeline_figure({"two": two_streams}, 0, 400)
    lanes = figure.layout.yaxis.ticktext
    assert lanes == ("steps", "ranges", "CUDA calls", "stream 7", "stream 20")
    compute = next(bar for bar in figure.data if bar.name == "compute")
    drawn = {(lanes[y], base): x for y, base, x in zip(compute.y, compute.base, compute.x, strict=True)}
    assert drawn == {("stream 7", 100): 100, ("stream 7", 210): 90, ("stream 20", 250): 100}
    assert "relu" in "".join(compute.hovertext) and "thinned" not in figure.layout.title.text
    assert "stream 7: 2 events, 190.0 µs in all" in figure.layout.meta["text"]
    cut = timeline_figure(two_streams, 150, 220)
    assert "stream 7: 2 events, 60.0 µs in all" in cut.layout.meta["text"] and "stream 20" in cut.layout.yaxis.ticktext


def test_a_timeline_is_thinned_truly_and_says_so(load):
    trace = SyntheticTrace()
    for number in range(2000):
        trace.launch(number * 10, number * 10 + 5, 4)
    trace = load(trace)
    figure = timeline_figure(trace, 0, 20_000)
    drawn = [time for bar in figure.data for time in bar.x]
    assert len(drawn) <= MOST_BARS and sum(drawn) == pytest.approx(2000 * (4 + 4))
    assert f"4,000 events thinned to {len(drawn):,} bars" in figure.layout.title.text
    few, within = thin(explorer.events_between(trace.ranks[0], 0, 1000), 0, 1000)
    assert within == 0 and len(few) == 200


@pytest.mark.parametrize("draw", FIGURES[:-1])
def test_a_cpu_s_trace_raises_what_its_table_raises(draw, on_a_cpu):
    with pytest.raises(TraceError, match="no GPU activity"):
        draw(on_a_cpu)


class Parts:
    """The widgets of an explorer by name."""

    def __init__(self, box):
        self.recording, self.view, self.runtime, self.delay, self.interval, *rest = box.children
        self.message, self.figure, self.words = rest


def same(figure, drawn):
    """Whether a widget shows what a figure does, but for the ids that widgets give their traces."""
    mine, theirs = figure.to_plotly_json(), drawn.to_plotly_json()
    for trace in mine["data"]:
        trace.pop("uid", None)
    return str(mine) == str(theirs) or go.Figure(mine).to_json() == go.Figure(theirs).to_json()


def test_the_explorer_draws_every_figure_into_one_widget(two_streams, one_kernel):
    recordings = {"two": two_streams, "one": one_kernel}
    parts = Parts(trace_explorer(recordings))
    first = parts.figure
    assert isinstance(first, go.FigureWidget) and same(first, traces.temporal_figure({"two": two_streams}))
    for view in [*VIEWS, *reversed(VIEWS)]:  # each after another one, of which nothing may be left
        parts.view.value = view
        arguments = parts.interval.value if view == "timeline" else ()
        drawn = VIEWS[view]({"two": two_streams}, *arguments)
        assert parts.figure is first and same(first, drawn), view
        assert drawn.layout.title.text.partition(" ")[0] in parts.words.value
    parts.recording.value = "one"
    assert same(first, traces.temporal_figure({"one": one_kernel}))
    parts.recording.value = explorer.ALL
    assert same(first, traces.temporal_figure(recordings))


def test_the_explorer_s_sliders_act(two_streams):
    parts = Parts(trace_explorer(two_streams))
    assert parts.delay.layout.display == parts.interval.layout.display == "none"
    parts.view.value = "launches"
    assert parts.delay.layout.display == "" and parts.interval.layout.display == "none"
    parts.delay.value, parts.runtime.value = 150, 60
    assert parts.figure.data[0].y[:2] == ("delay over 150 µs", "call over 60 µs")
    parts.view.value = "timeline"
    assert parts.interval.layout.display == "" and parts.interval.value == (100, 160) and parts.interval.max == 700
    parts.interval.value = (200, 300)
    assert "200 to 300 µs" in parts.figure.layout.title.text and "200 to 300 µs" in parts.words.value
    assert parts.figure.layout.xaxis.range == (200, 300)


def test_the_explorer_shows_what_a_cpu_s_trace_has(two_streams, on_a_cpu):
    parts = Parts(trace_explorer({"GPU": two_streams, "CPU": on_a_cpu}))
    assert not parts.message.value
    parts.recording.value = "CPU"
    assert "no GPU activity" in parts.message.value
    assert same(parts.figure, traces.operators_figure({"CPU": on_a_cpu}))
    parts.recording.value = "GPU"
    assert not parts.message.value and "wall time" in parts.figure.layout.title.text
