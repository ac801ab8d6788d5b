"""The roofline as a function, and in a replay."""

import pytest

from labkit.measure.roofline import roofline_seconds
from labkit.simulate.cost_model import Roofline


def test_the_longer_of_computing_and_moving_counts():
    assert roofline_seconds(2e9, 1e8, 100e9, 10e9) == 2e9 / 100e9
    assert roofline_seconds(2e8, 1e8, 100e9, 10e9) == 1e8 / 10e9


def test_a_replay_has_the_same_roofline():
    device = Roofline("Imaginary", {"float32": 200e9}, 20e9, flops_share=0.5, bytes_share=0.5)
    for flops in (0, 2e8, 2e9):
        work = 1e6 * roofline_seconds(flops, 1e8, 100e9, 10e9)
        assert device.microseconds(flops, 1e8) == pytest.approx(device.least_us + work)
    assert device.microseconds(0, 0) == device.least_us
