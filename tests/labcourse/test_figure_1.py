"""The course paper's Figure 1 fits its tables, and says what data/paper/README.md and notebook 04 say of it."""

import pytest

import labcourse
from labcourse.figure_1 import LOOKS, figure_times


@pytest.fixture(scope="module")
def figure():
    return labcourse.paper_figure()


def lengths(rows):
    return rows["end_ms"] - rows["begin_ms"]


def row_ms(table, name):
    return labcourse.paper_profile(table).set_index("name")["self_cuda_us"].filter(like=name).iloc[0] / 1e3 / 20


def test_the_gpu_is_hardly_idle_and_two_lanes_overlap(figure):
    times = figure_times(figure)
    end = figure["end_ms"].max()
    assert 2 < end - times["busy"] < 3 and 345 < times["counted_twice"] < 357 and 101 < times["alone"] < 106, times
    copies = row_ms("resnet_b16_streams", "HtoD")
    total = labcourse.paper_profile("resnet_b16_streams").attrs["stamp"]["gpu_us"] / 1e3 / labcourse.STEPS
    assert total - copies - end == pytest.approx(79, abs=0.5)


def test_the_timeline_says_where_it_comes_from_and_has_a_bar_for_each_row(figure):
    drawn = labcourse.paper_timeline()
    assert "read off the course paper's Figure 1" in drawn.layout.title.text
    assert sum(len(bar.x) for bar in drawn.data) == len(figure) and len(drawn.data) == len(LOOKS)
    assert "begin, ms" in drawn.layout.meta["table"] and "alone" not in drawn.layout.title.text
