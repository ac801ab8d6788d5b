"""Intervals of one level that overlap: marks of steps, users' ranges, Python's functions whose return is missing."""

import numpy as np
import pandas
import pytest
from synthetic_trace import SyntheticTrace, on_the_host

from labtrace.events.intervals import Nesting, Union

STEPS = range(3, 13)


def steps_that_overlap(us, all_end_late=True):
    """Ten steps of 100, each with four kernels of 10, one launched at its very begin. Marks, or the last, end late."""
    trace = SyntheticTrace()
    for place, step in enumerate(STEPS):
        trace.range(f"ProfilerStep#{step}", 100 * place, 100 + (us if all_end_late or step == STEPS[-1] else 0))
        for kernel in range(4):
            trace.launch(100 * place + 20 * kernel, 100 * place + 20 * kernel + 8, 10, 2, name=f"kernel {kernel}")
    return trace


@pytest.mark.parametrize("us", [0.5, 2, 8, 40, 120, 250])  # of 120 on, three and more steps are under way at once
def test_a_kernel_belongs_to_the_step_that_began_last_before_its_launch(load, us):
    found, right = load(steps_that_overlap(us)), load(steps_that_overlap(us, all_end_late=False))
    walls = found.temporal("step").query("part == 'wall'")
    assert walls["step"].tolist() == [*STEPS] and walls["us"].tolist() == [100] * 9 + [70]
    assert found.ranks[0].kernels["step"].tolist() == np.repeat(STEPS, 4).tolist()
    assert found.ranks[0].steps["duration"].tolist() == [100] * 9 + [100 + us]
    for table in ("temporal", "summary", "audit", "gaps", "idle", "kernels", "queue", "remedies", "operators"):
        pandas.testing.assert_frame_equal(getattr(found, table)(), getattr(right, table)())
    parts = found.steps(5, 6), right.steps(5, 6)
    assert len(parts[0].ranks[0].kernels) == 8
    pandas.testing.assert_frame_equal(*(part.temporal() for part in parts))
    pandas.testing.assert_frame_equal(*(part.ranks[0].steps for part in parts))


def test_steps_that_overlap_on_a_processor_last_until_the_next(load):
    events = [(f"ProfilerStep#{step}", 100 * step, 140) for step in range(9)]
    found = load(on_the_host(*events, *(("aten::mm", 100 * step, 80) for step in range(9))))
    assert found.processor()["us_per_step"].sum() == pytest.approx(940 / 9)  # the last one lasts 140
    assert load(on_the_host(*events, ("aten::mm", 0, 80))).steps(2).ranks[0].steps["duration"].tolist() == [100]


def test_steps_that_end_with_the_recording_last_until_the_next(load):
    found = load(on_the_host(*((f"ProfilerStep#{step}", 100 * step, 500 - 100 * step) for step in range(3))))
    assert found.ranks[0].steps["duration"].tolist() == [100, 100, 300]


def test_a_step_within_another_leaves_it_as_it_is(load):
    found = load(steps_that_overlap(0).range("ProfilerStep#99", 110, 30)).ranks[0]
    assert found.kernels["step"].value_counts()[[4, 99]].tolist() == [3, 1]
    assert found.steps["duration"].tolist() == [100] * 10 + [30]


def test_of_ranges_that_cross_the_one_that_began_last_counts(load):
    trace = SyntheticTrace().range("a", 0, 50).range("b", 30, 60).range("c", 70, 5)
    for launch in (20, 40, 60, 72, 80, 95):
        trace.launch(launch, launch + 4, 1, 1)
    found = load(trace)
    ranges = found.ranks[0].ranges["name"].to_numpy()
    places = found.ranks[0].kernels["range"]
    assert [ranges[place] if place >= 0 else "" for place in places] == ["a", "b", "b", "c", "b", ""]
    assert found.ranges()["total_us"].tolist() == [50, 60, 5]


ORPHAN = ("python_function", "orphan", 20, 5000)
HOOKS = [("python_function", "begin_hook", 95, 115), ("python_function", "end_hook", 380, 388)]
FILLED = {
    "a range begins in one function and ends in another": (
        [*HOOKS, ("user_annotation", "work", 105, 385)], "work", 275 / 290,
    ),
    "a function without a recorded return ends with its caller": (
        [("python_function", "caller", 10, 105), ORPHAN], "cudaLaunchKernel", 4 / 290,  # the gap's own call
    ),
    "as long as its caller": ([("python_function", "caller", 10, 300), ORPHAN], "orphan", 190 / 290),
}  # fmt: skip


@pytest.mark.parametrize(("events", "name", "share"), FILLED.values(), ids=FILLED)
def test_a_gap_is_filled_by_what_was_under_way(load, events, name, share):
    """A gap from 110 to 400."""
    trace = SyntheticTrace().launch(90, 100, 10)
    for category, called, begin, end in events:
        trace.event(category, called, begin, end - begin)
    trace.launch(390, 400, 10)
    assert load(trace).gaps(1)[["filled_by", "share_filled"]].iloc[0].tolist() == [name, pytest.approx(share)]


def test_intervals_that_cross_against_their_definition():
    draw = np.random.default_rng(0)
    for _ in range(300):
        begin = draw.integers(0, 20, 8)
        end = begin + draw.integers(0, 12, 8)
        nesting = Nesting(begin, end, crossing=True)
        for instant in np.arange(33) + 0.5:
            under_way = np.flatnonzero((begin <= instant) & (instant < end))
            found = around = nesting.at(instant)
            if not len(under_way):
                assert found == -1
                continue
            assert found in under_way and begin[found] == begin[under_way].max()
            parents = set()
            while around >= 0:
                parents.add(int(around))
                around = nesting.parent[around]
            assert parents >= set(under_way.tolist())
        assert nesting.own_time().sum() == Union(begin, end).length
