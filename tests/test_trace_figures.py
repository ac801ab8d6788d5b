"""Figures of traces hold the tables' numbers and tell them in words."""

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic_trace import SyntheticTrace

from labkit import show
from labkit.errors import LabkitError
from labkit.show.explorer import VIEWS
from labkit.show.launching import thin_steps
from labkit.traces.reading import TraceError
from labkit.traces.trace import Trace

ON_A_CPU = [show.operators_figure, show.ranges_figure]
OF_A_GPU = [view for view in VIEWS.values() if view not in (show.timeline_figure, *ON_A_CPU)]


def bars(figure, axis="x"):
    """The lengths of the bars in one panel, by the names of legend and bar."""
    return {
        (bar.name, y): x for bar in figure.data if (bar.xaxis or "x") == axis for y, x in zip(bar.y, bar.x, strict=True)
    }


@pytest.mark.parametrize("draw", [*OF_A_GPU, *ON_A_CPU])
def test_every_figure_says_what_it_is_and_what_was_measured_on_what(draw, two_streams, one_kernel):
    figure = draw({"two": two_streams, "one": one_kernel})
    assert type(figure) is go.Figure
    stamps = "two: NVIDIA Imaginary, torch 2.11.0; one: not recorded by labkit"
    title, stamp = figure.layout.title.text.removesuffix("</sub>").split("<br><sub>")
    assert title and stamp == stamps
    text = figure.layout.meta["text"]
    assert text.startswith(title) and text.endswith(f"Stamps: {stamps}.")
    assert "nan" not in text and "two" in text and "one" in text
    if draw is not show.summary_figure:  # a table has no axes, and all that it knows is seen
        for bar in figure.data:
            assert bar.hovertemplate or all(bar.hovertext)
        axes = [axis.title.text for axis in figure.select_xaxes()]
        assert any(axes + [note.text for note in figure.layout.annotations])


@pytest.mark.parametrize("draw", [*OF_A_GPU, *ON_A_CPU])
def test_names_are_shown_as_they_are_and_not_taken_for_html(draw, load):
    trace = SyntheticTrace()
    trace.range("ProfilerStep#0", 0, 100)
    trace.range("labkit: <i>mine</i>", 0, 100)
    trace.operator("<i>mul</i>", 0, 100)
    trace.launch(10, 20, 90, name="<i>gemm</i>")
    trace.launch(50, 150, 90, name="<i>gemm</i>")
    figure = draw({"a<b> & c": load(trace)})
    assert "a<b> & c" in figure.layout.meta["text"] and "&lt;" not in figure.layout.meta["text"]
    drawn = figure.update_layout(meta=None).to_json().replace(r"\u003c", "<")
    assert "a<b>" not in drawn and "<i>" not in drawn and "a&lt;b&gt; &amp; c" in drawn.replace(r"\u0026", "&")


def test_temporal_shares_are_of_the_wall_time(two_streams, one_kernel):
    figure = show.temporal_figure({"two": two_streams, "one": one_kernel})
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
    figure = show.temporal_figure(load(trace))
    assert "beyond 100%: kinds at the same time" in figure.layout.xaxis.title.text
    assert figure.layout.xaxis.range[1] == pytest.approx(2) and "more than 100%" in figure.layout.meta["text"]


@pytest.mark.parametrize("draw", [*OF_A_GPU, *ON_A_CPU])
def test_a_share_of_nothing_is_unknown(draw, load):
    trace = SyntheticTrace()
    trace.range("ProfilerStep#0", 0, 4)
    trace.launch(0, 5, 0)
    assert "nan" not in draw(load(trace)).layout.meta["text"]


def test_each_step_has_its_bar_and_its_wall_time(two_streams, one_kernel):
    figure = show.steps_figure({"two": two_streams, "one": one_kernel})
    shown = bars(figure)
    assert shown["idle", "3"] == 160 and shown["compute", "3"] == 240 and shown["memory", "4"] == 40
    assert shown["wall time", "3"] == 400 and shown["wall time", "4"] == 200 and bars(figure, "x2")["idle", "7"] == 0
    assert "two: step 3: wall time 400.0 µs; step 3: idle 160.0 µs, 40.0% of its" in figure.layout.meta["text"]
    assert "beyond" not in figure.layout.xaxis2.title.text
    assert figure.layout.xaxis.matches == "x2", "one scale, so that steps of two recordings can be compared"


def test_gaps_are_named_after_where_the_host_was_when_they_ended(two_streams, one_kernel):
    figure = show.gaps_figure({"two": two_streams, "one": one_kernel}, largest=2)
    assert {bar.name.partition("(")[2][:-1]: bar.x for bar in figure.data} == {"host_wait": (150,), "other": (60,)}
    assert figure.layout.yaxis.ticktext == ("aten::mul", "no operator")
    hover = figure.data[0].hovertext[0]
    assert "Memcpy HtoD (Pageable -&gt; Device)" in hover and "from its launch to its begin: 26.0 µs" in hover
    notes = [note.text for note in figure.layout.annotations]
    assert notes == ["two: the largest 2, 210.0 µs, are 95.5% of the idle time", "one: never idle"]
    in_range = show.gaps_figure({"two": two_streams}, largest=3)
    assert in_range.layout.yaxis.ticktext[2] == "no operator<br>in generators forward"
    assert "10.0 µs, kernel_wait, until no operator in generators forward" in in_range.layout.meta["text"]


def test_memory_operations_have_their_share_of_the_busy_time_beside_them(load, one_kernel):
    trace = SyntheticTrace()
    trace.launch(0, 10, 600)
    for number in range(3):
        trace.copy(20, 610 + 20 * number, 20, name="Memcpy DtoD (Device -> Device)")
    trace.copy(30, 670, 140)
    figure = show.memory_figure({"copies": load(trace), "one": one_kernel})
    shown = bars(figure)
    assert shown["share of their number", "DtoD"] == 0.75 and shown["share of their time", "DtoD"] == 0.3
    assert shown["share of their number", "HtoD, pageable"] == 0.25
    notes = [note.text for note in figure.layout.annotations]
    assert notes == [
        "copies: 4 memory operations, 200.0 µs in all, 25.0% of the busy time",
        "one: no memory operations",
    ]


def test_the_verdict_is_a_table_with_a_column_for_each_recording(two_streams, one_kernel):
    figure = show.summary_figure({"two": two_streams, "one": one_kernel})
    labels, two, one = figure.data[0].cells["values"]
    assert figure.data[0].header["values"] == ("", "<b>two</b>", "<b>one</b>")
    two, one = dict(zip(labels, two, strict=True)), dict(zip(labels, one, strict=True))
    assert two["bound by"] == "<b>compute</b>" and two["why"].startswith("The GPU was idle for 37% of the wall time")
    assert two["wall time"] == "600.0 µs" and two["idle, of the wall time"] == "36.7%"
    assert one["waiting for the host, of the idle time"] == "not known", "as it was never idle"
    wide = show.summary_figure(two_streams).layout.height
    narrow = show.summary_figure({str(number): two_streams for number in range(4)}).layout.height
    assert narrow > wide, "the words take more lines in narrower columns"


def test_idle_is_the_device_s(two_streams):
    figure = show.idle_figure({"two": two_streams})
    shown = {bar.name.partition("(")[2][:-1]: bar.x[0] for bar in figure.data}
    assert shown == pytest.approx({"host_wait": 0.25, "kernel_wait": 10 / 600, "other": 0.1, "unknown": 0})
    assert "host_wait 25.0% (150.0 µs)" in figure.layout.meta["text"]
    assert "68.2% of the idle time" in figure.data[0].hovertext[0]


def test_kernels_by_kind_and_by_name(two_streams):
    kinds = show.kernel_kinds_figure({"two": two_streams})
    assert bars(kinds)["compute", "two"] == 0.39 and bars(kinds, "x2")["compute", "two"] == 4
    assert "communication: none" in kinds.layout.meta["text"]
    figure = show.top_kernels_figure({"two": two_streams}, top=2)
    assert bars(figure) == {("compute", 0): 0.2, ("compute", 1): 0.1}
    assert figure.layout.yaxis.ticktext == ("gemm", "gemm&lt;4, float&gt;(int)")
    assert "first 2" in figure.layout.title.text and "gemm 0.20 (52.6%)" in figure.layout.meta["text"]
    both = show.top_kernels_figure({"a": two_streams, "b": two_streams}, top=1)
    assert [bar.name for bar in both.data] == ["a: compute", "b: compute"]
    assert len({bar.marker.pattern.shape for bar in both.data}) == 2, "colours mean kinds, so hatching tells recordings"


def test_launches_put_kernels_beside_time(two_streams):
    figure = show.launches_figure({"two": two_streams}, delay_cutoff=150)
    shown = [next(share for (name, y), share in bars(figure).items() if of in name and "150" in y) for of in
             ("kernels", "GPU time", "wall")]  # fmt: skip
    assert shown == pytest.approx([1 / 5, 100 / 430, 100 / 600])
    assert "delay over 150 µs: 1 of the kernels (20.0%), 100.0 µs, 23.3% of the GPU time" in figure.layout.meta["text"]


def test_launches_that_cannot_be_known_are_no_bars_of_length_zero(load):
    trace = SyntheticTrace()
    trace.kernel(0, 10)
    figure = show.launches_figure(load(trace))
    assert np.isnan(figure.data[0].x[0]) and figure.data[0].x[3] == 1
    assert "cannot be known" in figure.data[0].hovertext[0] and "cannot be known" in figure.layout.meta["text"]


def test_delays_are_distributed_over_kernels_and_over_gpu_time(load):
    trace = SyntheticTrace()
    trace.launch(0, 10, 600)  # delay 6
    trace.launch(10, 620, 100)  # delay 606
    trace.launch(20, 730, 100)  # delay 706
    trace.launch(826, 830, 200)  # delay 0
    without = SyntheticTrace()
    without.kernel(0, 10)
    figure = show.delays_figure({"known": load(trace), "unknown": load(without)})
    kernels, time, *unknown = figure.data
    edges = np.array(kernels.x)
    place = [np.searchsorted(edges, delay, side="right") - 1 for delay in (1, 6, 606, 706)]
    assert place[2] == place[3], "in one bin"
    assert [kernels.y[bin] for bin in place] == [0.25, 0.25, 0.5, 0.5]
    assert [time.y[bin] for bin in place] == [0.2, 0.6, 0.2, 0.2] and sum(time.y) == pytest.approx(1)
    assert all(np.isnan(line.y[0]) for line in unknown)
    text = figure.layout.meta["text"]
    assert "more than 306.0 µs, 50.0% for more than 100 µs, with 20.0% of the GPU time" in text
    assert "unknown: cannot be known" in text
    assert [line.x0 for line in figure.layout.shapes] == [100, 100]


def test_the_queue_is_drawn_as_steps(two_streams):
    figure = show.trace_queue_figure({"two": two_streams})
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
    figure = show.trace_queue_figure(trace)
    assert len(figure.data[0].x) <= 2000 < len(trace.queue()) and max(figure.data[0].y) == 2
    assert "2,000 points" in figure.layout.xaxis.title.text
    random = np.random.default_rng(0).integers(0, 1000, 12345)
    shown = thin_steps(random)
    assert len(shown) <= 2000 and random[shown].max() == random.max() and random[shown].min() == random.min()
    assert (np.diff(shown) > 0).all()


def test_concurrency_has_union_beside_sum(two_streams):
    figure = show.concurrency_figure({"two": two_streams})
    assert [bar.x[0] for bar in figure.data[:3]] == pytest.approx([220 / 600, 330 / 600, 50 / 600])
    assert bars(figure, "x2") == {("sum of durations", "two, sum"): 0.43, ("union", "two, union"): 0.38}
    assert "union 380.0 µs, sum 430.0 µs; 0 streams busy 36.7%" in figure.layout.meta["text"]
    within = show.concurrency_figure(two_streams, within="generators forward")
    assert "generators forward" in within.layout.title.text and "union 240.0 µs" in within.layout.meta["text"]
    with pytest.raises(LabkitError, match="did you mean 'generators forward'"):
        show.concurrency_figure(two_streams, within="generator forward")


def test_ranks_are_drawn_one_by_one(tmp_path):
    for rank in (0, 1):
        trace = SyntheticTrace(rank=rank)
        trace.launch(0, 10, 90)
        trace.save(tmp_path / f"{rank}.json")
    figure = show.temporal_figure({"run": Trace(tmp_path)})
    assert list(figure.data[0].y) == ["run, rank 0", "run, rank 1"]


def test_host_time_by_range_is_that_of_a_step(load, two_streams, one_kernel, on_a_cpu):
    figure = show.ranges_figure({"two": two_streams, "one": one_kernel, "cpu": on_a_cpu})
    shown = bars(figure)
    assert shown == {("generators forward", 0): 0.195, ("data", 0): 0.015, ("generators forward", 2): 0.04}
    assert figure.layout.yaxis.ticktext == ("two", "one<br>(no range of labkit)", "cpu")
    assert "one: no range of labkit in the trace" in figure.layout.meta["text"]
    unmarked = SyntheticTrace()
    unmarked.range("labkit: data", 0, 30)
    figure = show.ranges_figure(load(unmarked))
    assert (
        np.isnan(figure.data[0].x[0]) and "data an unknown time a step; 1 times, 30.0 µs" in figure.layout.meta["text"]
    )


def test_a_part_says_which_steps_it_holds(two_streams):
    figure = show.temporal_figure({"all": two_streams, "first": two_streams.steps(3), "both": two_streams.steps(3, 4)})
    assert figure.layout.title.text.endswith(
        "<sub>all: NVIDIA Imaginary, torch 2.11.0; first: NVIDIA Imaginary, torch 2.11.0, only step 3; "
        "both: NVIDIA Imaginary, torch 2.11.0, only steps 3 to 4</sub>"
    )


@pytest.mark.parametrize("draw", OF_A_GPU)
def test_a_cpu_s_trace_raises_what_its_table_raises(draw, on_a_cpu):
    with pytest.raises(TraceError, match="no GPU activity"):
        draw(on_a_cpu)
