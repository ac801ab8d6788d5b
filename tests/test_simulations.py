"""The SIMULATED figures say so and tell their numbers in words; the widgets redraw them in place."""

import plotly.graph_objects as go
import pytest

from labkit.course import overlap_figure, overlap_widget, queue_figure, queue_widget


def parts(widget):
    """The controls, the figure and the words of a widget."""
    *controls, figure, words = widget.children
    return controls, figure, words


@pytest.mark.parametrize("figure", [queue_figure(), queue_figure(streams=2, graph=True), overlap_figure()])
def test_every_figure_says_that_it_is_simulated(figure):
    assert type(figure) is go.Figure
    assert "<b>SIMULATED</b>" in figure.layout.title.text
    stamped = [(note.xref, note.yref) for note in figure.layout.annotations if note.text == "<b>SIMULATED</b>"]
    assert stamped == [(f"x{n} domain", f"y{n} domain") for n in ("", *range(2, len(stamped) + 1))]
    assert len(stamped) == len(list(figure.select_xaxes())), "a panel cut out of the figure would not say so"
    assert figure.layout.meta["text"].startswith("SIMULATED")
    axes = [axis.title.text for axis in figure.select_xaxes()]
    assert axes[0] == "microseconds" and None not in axes
    assert sum(len(trace.x) for trace in figure.data if trace.type == "bar") < 200


def test_the_verdict_turns_where_kernel_and_pause_take_as_long_as_a_launch():
    verdicts = {us: queue_figure(kernel_us=us).layout.title.text for us in (8.5, 9, 30)}
    assert "host bound" in verdicts[8.5] and "compute bound" in verdicts[9] and "compute bound" in verdicts[30]
    assert "host bound" in queue_figure(kernel_us=18, streams=2).layout.title.text, "one host for two streams"
    assert "compute bound" in queue_figure(kernel_us=1, graph=True).layout.title.text


@pytest.mark.parametrize(
    "make, moves, same",
    [
        (queue_widget, {0: 5.0, 1: 12.0}, lambda: queue_figure(host_us=5, kernel_us=12)),
        (queue_widget, {2: 2, 3: True}, lambda: queue_figure(streams=2, graph=True)),
        (overlap_widget, {0: 0.8}, lambda: overlap_figure(0.8)),
    ],
)
def test_moving_a_control_redraws_the_same_figure(make, moves, same):
    widget = make()
    controls, figure, words = parts(widget)
    before, text = [list(trace.x) for trace in figure.figure.data], words.value
    for position, value in moves.items():
        controls[position].value = value
    assert parts(widget)[1] is figure and [list(trace.x) for trace in figure.figure.data] != before
    assert words.value != text and figure.figure.layout.meta["text"].partition(".")[0] in words.value
    assert figure._drawn.text == same().to_json()
