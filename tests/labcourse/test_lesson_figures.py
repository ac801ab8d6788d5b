"""The lessons' figures hold their tables' numbers and say what is SIMULATED; their widgets redraw them in place."""

import pandas
import pytest
import torch
from made_up import curve

import labcourse
from labcourse.figures import scaling_figure
from labkit.errors import LabkitError
from labkit.measure.quality import GOAL
from labkit.simulate import error_range
from labtrace.show.style import in_words

STAMP = {"device": "Imaginary", "torch": "2.11", "threads": 1, "data": "fruit", "size": 64, "batch_shape": [1, 3, 8, 8]}


@pytest.fixture
def curves():
    """Two names with two seeds each: A passes at 200 and 300 pictures, B never twice."""
    scores = {("A", 0): [20, 9, 8], ("A", 1): [9, 9, 9], ("B", 0): [9, 20, 9], ("B", 1): [20, 20, 20]}
    each = [curve(*of, [(fg, 3.0) for fg in looks]) for of, looks in scores.items()]
    table = pandas.concat(each, ignore_index=True)
    table.attrs["stamp"] = STAMP
    return table


def test_lines_stand_in_small_multiples_and_their_table_is_read_aloud():
    rows = [(batch, step, us, batch * us) for batch in (1, 16) for step in ("eager", "graph") for us in (5, 40)]
    table = pandas.DataFrame(rows, columns=["batch", "step", "host_us", "ms"])
    figure = labcourse.lines(table, "host_us", "ms", "step", "A step", facet_row="batch")
    assert len(figure.data) == 4 and {note.text for note in figure.layout.annotations} == {"batch=1", "batch=16"}
    assert figure.layout.meta["text"] == "A step: ms over host_us." and "640" in figure.layout.meta["table"]


def test_learning_has_panels_for_each_name_and_a_line_for_each_seed(curves):
    figure = labcourse.learning_figure(curves)
    assert {note.text for note in figure.layout.annotations} == {"A", "B", "fg", "bg"}
    assert len(figure.data) == 2 * 2 * 2
    goals = {shape.yref.removesuffix(" domain"): shape.y0 for shape in figure.layout.shapes}
    assert "A at fg 8.0 to 9.0 % and bg 3.0 to 3.0 %" in figure.layout.meta["text"]
    fg_of_a = next(line for line in figure.data if list(line.y) == [20, 9, 8])
    assert goals[fg_of_a.yaxis] == GOAL["fg"] and sorted(set(goals.values())) == sorted(GOAL.values())


def test_a_circle_for_each_seed_that_reached_the_goal(curves):
    figure = labcourse.passes_figure(curves)
    (circles,) = figure.data
    names = ["A<br>2 of 2 seeds", "B<br>0 of 2 seeds"]
    reached = [(y, x) for y, x in zip(circles.y, circles.x, strict=True) if x == x]
    assert reached == [(names[0], 30.0), (names[0], 20.0)] and set(circles.y) == set(names)
    assert "A, 2 of 2 seeds: 20 to 30" in figure.layout.meta["text"]
    assert list(labcourse.passes_figure(curves, "flops").data[0].x)[:2] == [3, 2]
    with pytest.raises(LabkitError, match="against"):
        labcourse.passes_figure(curves, "epochs")


def test_points_lie_at_what_was_measured_under_a_roof_that_bends_where_the_rates_meet():
    rows = {  # on a device of 100 GFLOP/s and 10 GB/s
        "plain": {"flops": 2e9, "bytes_moved": 1e8, "median_s": 0.04},  # 20 FLOP a byte, half of what is possible
        "depthwise": {"flops": 2e8, "bytes_moved": 1e8, "median_s": 0.02},  # 2 FLOP a byte, half of what is possible
    }
    costs = pandas.DataFrame(rows).T
    costs["flop_per_byte"] = costs["flops"] / costs["bytes_moved"]
    costs.attrs["stamp"] = STAMP
    figure = labcourse.roofline_figure(costs, 100e9, 10e9, "Two layers")
    *points, roof = figure.data
    assert list(roof.x) == [1, 10, 40] and list(roof.y) == pytest.approx([10, 100, 100])
    assert [(point.x[0], point.y[0]) for point in points] == [(20, pytest.approx(50)), (2, pytest.approx(10))]
    assert "plain at 50% of it, depthwise at 50% of it" in figure.layout.meta["text"]


def test_each_round_of_the_ring_moves_as_much_and_the_last_leaves_every_sum_everywhere():
    frames = [[list(bar.y) for bar in frame.data] for frame in labcourse.ring_figure().frames]  # of parts, of ranks
    assert frames[0] == [[1] * 4] * 4 and frames[-1] == [[4] * 4] * 4 and len(frames) == 7
    assert sum(part.count(4) for part in frames[3]) == 4, "one complete sum on each rank"
    for before, after in zip(frames, frames[1:], strict=False):
        changed = [(part, rank) for part in range(4) for rank in range(4) if before[part][rank] != after[part][rank]]
        assert sorted(rank for _, rank in changed) == [0, 1, 2, 3], "each rank receives one part"


@pytest.mark.parametrize("exponent", [0, 8])
def test_gradients_lie_in_the_regions_where_float16_rounds_them_to(exponent):
    gradients = {"generators": torch.tensor([0.0, 2.0**-26, -(2.0**-20), 1.5 * 2.0**-20, 2.0**-3])}
    figure = scaling_figure(gradients, exponent)
    (line,) = figure.data
    assert {x - exponent: y for x, y in zip(line.x, line.y, strict=True) if y} == {-25.5: 0.25, -19.5: 0.5, -2.5: 0.25}
    lost, subnormal, infinite = [(shape.x0, shape.x1) for shape in figure.layout.shapes]
    assert torch.tensor(2.0 ** lost[1]).half() == 0 < torch.tensor(1.01 * 2.0 ** lost[1]).half()
    assert torch.tensor(2.0 ** subnormal[1]).half() == torch.finfo(torch.float16).tiny
    assert torch.tensor(2.0 ** infinite[0]).half().isinf()
    shares = {0: "25% flushed, 50% subnormal, 0% overflowed", 8: "0% flushed, 25% subnormal, 0% overflowed"}
    assert shares[exponent] in figure.layout.meta["text"]


def test_a_single_overflow_among_many_does_not_look_like_none():
    many = torch.ones(10_000)
    many[0] = 1e6
    assert "0.01% overflowed" in scaling_figure({"generators": many}).layout.meta["text"]


def test_the_verdict_turns_where_kernel_and_pause_take_as_long_as_a_launch():
    verdicts = {us: labcourse.queue_figure(kernel_us=us).layout.title.text for us in (8.5, 9, 30)}
    assert "host bound" in verdicts[8.5] and "compute bound" in verdicts[9] and "compute bound" in verdicts[30]
    assert "host bound" in labcourse.queue_figure(kernel_us=18, streams=2).layout.title.text, "one host for two streams"
    assert "compute bound" in labcourse.queue_figure(kernel_us=1, graph=True).layout.title.text


CONTROLS = [
    (labcourse.queue_widget, {0: 5.0, 1: 12.0}, lambda: labcourse.queue_figure(host_us=5, kernel_us=12)),
    (labcourse.queue_widget, {2: 2, 3: True}, lambda: labcourse.queue_figure(streams=2, graph=True)),
    (labcourse.overlap_widget, {0: 0.8}, lambda: labcourse.overlap_figure(0.8)),
]


@pytest.mark.parametrize(("make", "moves", "draw"), CONTROLS)
def test_moving_a_control_redraws_the_same_figure_which_says_that_it_is_simulated(make, moves, draw):
    *controls, _, words = make().children
    for position, value in moves.items():
        controls[position].value = value
    figure = draw()
    assert words.value == in_words(figure), "what stands below the figure is what it shows now"
    assert "<b>SIMULATED</b>" in figure.layout.title.text and figure.layout.meta["text"].startswith("SIMULATED")
    stamped = [note.text for note in figure.layout.annotations].count("<b>SIMULATED</b>")
    assert stamped == len(list(figure.select_xaxes())), "a panel cut out of the figure would not say so"


def test_the_figure_of_hosts_moves_through_all_of_them_and_shows_the_error_of_its_times():
    times_faster = pandas.DataFrame({"streams": [1.3, 1.0], "bf16": [1.1, 0.9]}, index=[5, 19])
    figure = labcourse.hosts_figure(times_faster, "SIMULATED A100: times faster")
    assert [step.label for step in figure.layout.sliders[0].steps] == ["5", "19"]
    assert [list(frame.data[0].x) for frame in figure.frames] == [[1.3, 1.1], [1.0, 0.9]]
    band = figure.layout.shapes[0]
    assert (band.x0, band.x1) == error_range() and "0.7 to 1.3" in figure.layout.title.text
    assert "<b>SIMULATED</b>" in figure.layout.title.text


def test_memory_is_drawn_up_to_its_peak_with_its_holders_in_words():
    events = [("before the step", 2 * 10**9), ("forward", 6 * 10**9), ("loss", 10**6), ("forward", -6 * 10**9)]
    figure = labcourse.memory_figure(events, "A step")
    assert [trace.name for trace in figure.data] == ["before the step", "forward"], "a thousandth is not seen"
    assert max(figure.data[1].y) == 6
    assert "8.0 GB at the peak" in figure.layout.meta["text"] and "6 forward" in figure.layout.meta["text"]
