"""The timeline of one recording or more; the explorer redraws one figure in place."""

import ipywidgets
import plotly.graph_objects as go
import pytest
from synthetic_trace import SyntheticTrace
from test_views import told

from labtrace import show
from labtrace.show.explorer import ALL
from labtrace.show.style import in_words
from labtrace.show.timeline import MOST_BARS, events_between, length_us, thin
from labtrace.show.views import VIEWS
from labtrace.show.widgets import controlled

WITHOUT_SHAPES = [view for view in VIEWS if view not in ("achieved", "processor")]


def totals(figure):
    """Events and total µs of each lane, by recording and lane, in the figure's text alternative."""
    return {(row["recording"], row["lane"]): (row["events"], row["total µs"]) for row in told(figure)}


def timeline(traces, begin_us, end_us):
    return show.trace(traces, "timeline", begin_us=begin_us, end_us=end_us)


def test_the_timeline_has_host_and_streams_as_lanes(two_streams):
    figure = timeline({"two": two_streams}, 0, 400)
    lanes = figure.layout.yaxis.categoryarray
    assert lanes == ("steps", "ranges", "CUDA calls", "stream 7", "stream 20")
    compute = next(bar for bar in figure.data if bar.name == "compute")
    drawn = {(y, base): x for y, base, x in zip(compute.y, compute.base, compute.x, strict=True)}
    assert drawn == {("stream 7", 100): 100, ("stream 7", 210): 90, ("stream 20", 250): 100}
    calls = next(bar for bar in figure.data if bar.name == "CUDA call")
    assert compute.text[0].startswith("gemm") and not any(calls.text), "few kernels have their names in their bars"
    assert "relu" in "".join(compute.hovertext) and "thinned" not in figure.layout.xaxis.title.text
    assert totals(figure)["two", "stream 7"] == ("2", "190.0")
    cut = timeline({"two": two_streams}, 150, 220)
    assert totals(cut)["two", "stream 7"] == ("2", "60.0") and "stream 20" in cut.layout.yaxis.categoryarray


def test_a_timeline_is_thinned_truly_and_says_so(load):
    trace = load(SyntheticTrace().launches(2000, 0, 5, 4, every=10))
    figure = timeline(trace, 0, 20_000)
    drawn = [time for bar in figure.data for time in bar.x]
    assert len(drawn) <= MOST_BARS and sum(drawn) == pytest.approx(2000 * (4 + 4) / 1e3)
    axis = figure.layout.xaxis.title.text
    assert "milliseconds" in axis and "4,000" in axis and f"{len(drawn):,} bars" in axis
    few = thin(events_between(trace.ranks[0], 0, 1000), 0, 1000)
    assert len(few) == 200 and (few["events"] == 1).all()


def test_two_timelines_begin_with_their_own_first_events_and_are_equally_long(two_streams, one_kernel):
    figure = timeline({"part": two_streams.steps(4), "whole": one_kernel}, 0, 90)
    assert figure.layout.xaxis.range == figure.layout.xaxis2.range == (0, 90)
    assert [note.text for note in figure.layout.annotations] == ["part", "whole"]
    assert "0 to 90 µs" in figure.layout.title.text
    compute = [bar for bar in figure.data if bar.name == "compute"]
    assert [(bar.yaxis, bar.base, bar.x) for bar in compute] == [("y2", (10,), (80,))]
    assert [bar.name for bar in figure.data if bar.showlegend].count("CUDA call") == 1
    assert totals(figure)["part", "steps"] == ("1", "90.0")


def test_a_timeline_of_several_ranks_has_a_panel_for_each(ranks, one_kernel):
    figure = timeline({"run": ranks, "one": one_kernel}, 0, 300)
    assert [note.text for note in figure.layout.annotations] == ["run, rank 0", "run, rank 1", "one"]
    assert totals(figure)["run, rank 1", "stream 7"][1] == "200.0"


class Parts:
    """The widgets of an explorer by name."""

    def __init__(self, box):
        self.recording, self.view, self.table, self.interval, self.widget, self.words = box.children


def same(parts, drawn):
    """Whether a widget shows a figure, and its words."""
    return parts.widget._drawn.text == drawn.to_json() and parts.words.value == in_words(drawn)


def draw(view, traces, parts):
    begin, end = (share * length_us(traces) / 100 for share in parts.interval.value)
    return timeline(traces, begin, end) if view == "timeline" else show.trace(traces, view)


@pytest.mark.slow
def test_the_explorer_draws_every_figure_into_one_widget(two_streams, one_kernel):
    recordings = {"two": two_streams, "one": one_kernel}
    parts = Parts(show.trace_explorer(recordings))
    assert same(parts, show.trace({"two": two_streams}))
    drawn = {view: draw(view, {"two": two_streams}, parts) for view in WITHOUT_SHAPES}
    for view in [*drawn, *reversed(drawn)]:  # each after another one, of which nothing may be left
        parts.view.value = view
        assert same(parts, drawn[view]), view
    parts.recording.value = "one"
    assert same(parts, show.trace({"one": one_kernel}))
    parts.recording.value = ALL
    assert same(parts, show.trace(recordings))
    parts.view.value = "timeline"
    assert same(parts, draw("timeline", recordings, parts))


def test_the_explorer_s_sliders_act(two_streams):
    parts = Parts(show.trace_explorer(two_streams))
    assert parts.interval.layout.display == parts.table.layout.display == "none"
    parts.view.value = "hta"
    parts.table.value = "idle"
    assert parts.table.layout.display == "" and "HTA's table 'idle'" in parts.widget.figure.layout.title.text
    parts.view.value = "timeline"
    assert parts.interval.layout.display == "" and parts.interval.value == (0, 10)
    parts.interval.value = (25, 50)
    assert "175 to 350 µs" in parts.widget.figure.layout.title.text and "175 to 350 µs" in parts.words.value
    assert parts.widget.figure.layout.xaxis.range == (175, 350)


def test_the_explorer_says_what_a_cpu_s_trace_lacks(two_streams, on_a_cpu):
    parts = Parts(show.trace_explorer({"GPU": two_streams, "CPU": on_a_cpu}))
    parts.recording.value = "CPU"
    title = parts.widget.figure.layout.title.text.replace("<br>", " ")
    assert "without a GPU" in parts.words.value and "a GPU" in title
    parts.view.value = "operators"
    assert same(parts, show.trace({"CPU": on_a_cpu}, "operators"))


def test_a_widget_says_that_it_computes_until_the_next_figure_is_there():
    seen, control = [], ipywidgets.IntSlider(0)

    def draw(value):
        seen.extend(widget.busy for widget in shown)
        return go.Figure(layout_meta={"text": str(value / (value < 5))})

    shown = []
    shown.append(controlled(draw, {"value": control}).children[1])
    control.value = 1
    assert seen == [True] and not shown[0].busy
    with pytest.raises(ZeroDivisionError):
        control.value = 5
    assert seen == [True, True] and not shown[0].busy, "nothing is computed after an error"
