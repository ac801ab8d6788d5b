"""The course paper's tables and its Figure 1: read as printed, and what its README and notebook 04 say of them."""

import pytest

import labcourse
from labcourse.figure_1 import LOOKS, figure_times
from labcourse.paper import PROFILES
from labkit.simulate.operator_replay import HOST_US, RECORDED_HOST_US


def test_a_table_has_100_rows_and_says_where_it_comes_from():
    for name in PROFILES:
        profile = labcourse.paper_profile(name)
        assert len(profile) == 100 and (profile["name"] != "(all)").all()
        stamp = profile.attrs["stamp"]
        assert stamp["device"] == "NVIDIA A100" and "La" in stamp["recorded by others"] and stamp["steps"] == 20


def test_the_labs_host_is_that_of_the_course_paper_with_and_without_its_profiler():
    profile = labcourse.paper_profile("resnet_b1_baseline").set_index("name")
    calls = profile["calls"].filter(regex="^cuda(LaunchKernel|LaunchKernelExC|MemcpyAsync|MemsetAsync)$").sum()
    assert calls / labcourse.STEPS == pytest.approx(4668, abs=1)
    assert round(1e3 * labcourse.UNRECORDED_MS * labcourse.STEPS / calls) == HOST_US
    assert round(profile["self_cuda_us"]["ProfilerStep*"] / calls) == RECORDED_HOST_US


# ---- Figure 1


@pytest.fixture(scope="module")
def figure():
    return labcourse.paper_figure()


def test_the_gpu_is_hardly_idle_and_two_lanes_overlap(figure):
    times = figure_times(figure)
    end = figure["end_ms"].max()
    assert 2 < end - times["busy"] < 3 and 345 < times["counted_twice"] < 357 and 101 < times["alone"] < 106, times
    profile = labcourse.paper_profile("resnet_b16_streams")
    copies_us = profile.set_index("name")["self_cuda_us"].filter(like="HtoD").iloc[0]
    assert (profile.attrs["stamp"]["gpu_us"] - copies_us) / 1e3 / labcourse.STEPS - end == pytest.approx(79, abs=0.5)


def test_the_timeline_says_where_it_comes_from_and_has_a_bar_for_each_row(figure):
    drawn = labcourse.paper_timeline()
    assert "read off the course paper's Figure 1" in drawn.layout.title.text
    assert sum(len(bar.x) for bar in drawn.data) == len(figure) and len(drawn.data) == len(LOOKS)
    assert "begin, ms" in drawn.layout.meta["table"] and "alone" not in drawn.layout.title.text
