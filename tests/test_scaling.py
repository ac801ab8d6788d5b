"""The figure of loss scaling puts gradients where float16 does, and its widget redraws it in place."""

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from labkit.course import scaling_figure
from labkit.course.figures import scaling

GRADIENTS = {
    "generators": torch.tensor([0.0, 2.0**-26, -(2.0**-20), 1.5 * 2.0**-20, 2.0**-3]),
    "discriminators": torch.tensor([2.0**-16, -(2.0**-2)]),
}


def test_the_regions_are_those_of_float16():
    def sixteen(power, factor=1.0):
        return torch.tensor(factor * 2.0**power).half()

    assert sixteen(scaling.ZERO) == 0 < sixteen(scaling.ZERO, 1.01)
    assert sixteen(scaling.NORMAL) == torch.finfo(torch.float16).tiny
    assert sixteen(scaling.INFINITE).isinf() and sixteen(scaling.INFINITE, 0.999).isfinite()


@pytest.mark.parametrize("exponent", [0, 8])
def test_shares_by_power_of_two_are_moved_by_the_scale(exponent):
    figure = scaling_figure(GRADIENTS, exponent)
    assert type(figure) is go.Figure
    generators, discriminators = figure.data
    np.testing.assert_array_equal(generators.x, np.arange(-26, -2) + exponent + 0.5)
    assert {x - exponent: y for x, y in zip(generators.x, generators.y, strict=True) if y} == {
        -25.5: 0.25,
        -19.5: 0.5,
        -2.5: 0.25,
    }
    assert discriminators.y[0] == discriminators.y[-1] == 0.5 and not any(discriminators.y[1:-1])
    assert figure.layout.xaxis.title.text and figure.layout.yaxis.title.text


def test_the_words_have_the_shares():
    words = scaling_figure(GRADIENTS).layout.meta["text"]
    assert "generators: 25.0% flushed, 50.0% subnormal, 0.0% overflowed" in words
    assert "discriminators: 0.0% flushed, 50.0% subnormal" in words
    assert "25.0% overflowed" in scaling_figure(GRADIENTS, 19).layout.meta["text"]


def test_a_single_overflow_among_many_does_not_look_like_none():
    many = torch.ones(10_000)
    many[0] = 1e6
    assert "under 0.1% overflowed" in scaling_figure({"generators": many}).layout.meta["text"]
