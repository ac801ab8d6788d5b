"""The roofline as a function and as a figure."""

import pandas
import pytest

from labkit import course
from labkit.measure.roofline import roofline_seconds
from labkit.simulate.cost_model import Roofline


@pytest.fixture
def costs():
    rows = {  # on a device of 100 GFLOP/s and 10 GB/s
        "<plain>": {"flops": 2e9, "bytes_moved": 1e8, "median_s": 0.04},  # 20 FLOP a byte, half of what is possible
        "depthwise": {"flops": 2e8, "bytes_moved": 1e8, "median_s": 0.02},  # 2 FLOP a byte, half of what is possible
    }
    table = pandas.DataFrame(rows).T
    table["flop_per_byte"] = table["flops"] / table["bytes_moved"]
    table.attrs = {"stamp": {"device": "Imaginary", "torch": "2.11.0", "threads": 1, "batch_shape": [1, 3, 8, 8]}}
    return table


def test_the_longer_of_computing_and_moving_counts():
    assert roofline_seconds(2e9, 1e8, 100e9, 10e9) == 2e9 / 100e9
    assert roofline_seconds(2e8, 1e8, 100e9, 10e9) == 1e8 / 10e9


def test_a_replay_has_the_same_roofline():
    device = Roofline("Imaginary", {"float32": 200e9}, 20e9, flops_share=0.5, bytes_share=0.5)
    for flops in (0, 2e8, 2e9):
        work = 1e6 * roofline_seconds(flops, 1e8, 100e9, 10e9)
        assert device.microseconds(flops, 1e8) == pytest.approx(device.least_us + work)
    assert device.microseconds(0, 0) == device.least_us


def test_points_lie_at_what_was_measured_under_a_roof_that_bends_where_the_rates_meet(costs):
    figure = course.roofline_figure(costs, 100e9, 10e9, "Two layers")
    roof, *points = figure.data
    assert list(roof.x) == [1, 10, 40] and list(roof.y) == pytest.approx([10, 100, 100])
    assert [(point.x[0], point.y[0]) for point in points] == [(20, pytest.approx(50)), (2, pytest.approx(10))]
    assert [point.name for point in points] == ["&lt;plain&gt;", "depthwise"]
    words = figure.layout.meta["text"]
    plain, depthwise = words.partition("<plain>")[2].split("; ")
    assert "50 GFLOP/s" in plain and "20 FLOP" in plain and "50%" in plain
    assert "10 GFLOP/s" in depthwise and "2 FLOP" in depthwise and "50%" in depthwise
