"""Notebook 11's bounds hold against real steps and a search by brute force; its figure holds the study's numbers."""

import math

import pandas
import pytest
import torch

import labkit
from labkit.course import (
    best_interval,
    exchange_figure,
    exchange_widget,
    module_flops,
)
from labkit.errors import LabkitError
from labkit.measure import step_flops
from labkit.parallel import apart
from labkit.stamp import stamp


def small():
    return labkit.DeviationGAN(ngf=4, ndf=4, blocks=1)


def test_the_counted_work_of_modules_is_that_of_real_steps(tmp_path):
    pictures = (torch.zeros(1, 3, 32, 32),) * 2
    real = {"one process": step_flops(labkit.make_step(small()), pictures)}
    for module in small().players():
        job = apart(small(), exchange_every=1, module=module, folder=tmp_path)
        real[module] = step_flops(job, pictures)
    assert module_flops(small(), 32) == real


def test_no_other_interval_loses_less():
    save, between = 30.0, 86400.0
    lost = {interval: save / interval + interval / (2 * between) for interval in range(60, 86400, 10)}
    assert best_interval(save, between) == pytest.approx(min(lost, key=lambda interval: lost[interval]), abs=10)


@pytest.fixture
def curves():
    """Made up: fg falls with the pictures, from 20 % for "often" and from 40 % for "seldom"."""
    rows = [
        {"name": name, "seed": seed, "images": images, "fg": start + seed - images / 100, "bg": 3.0}
        for name, start in (("often", 20.0), ("seldom", 40.0))
        for seed in range(3)
        for images in (100, 200, 300)
    ]
    table = pandas.DataFrame(rows)
    table.attrs["stamp"] = stamp()
    return table


MEGABYTES = pandas.Series({"often": 10.0, "seldom": 0.1})


def test_the_figure_has_each_seed_their_median_and_the_traffic(curves):
    figure = exchange_figure(curves, MEGABYTES, "seldom")
    fg = [line for line in figure.data if line.type == "scatter" and line.yaxis == "y"]
    grey, *seeds, median = fg
    assert [list(line.y) for line in seeds] == [[39 + seed, 38 + seed, 37 + seed] for seed in range(3)]
    assert list(median.y) == [40, 39, 38] and list(grey.y)[0] == 20
    bars = figure.data[-1]
    assert dict(zip(bars.y, bars.x, strict=True)) == dict(MEGABYTES) and bars.marker.color[0] != bars.marker.color[1]
    words = figure.layout.meta["text"]
    assert words.startswith("seldom: 0.1 MB per step; ends at fg 37.0 to 39.0 % and bg 3.0 to 3.0 %")


def test_an_unknown_way_of_exchanging_is_an_error(curves):
    with pytest.raises(LabkitError, match="'never'.*often"):
        exchange_figure(curves, MEGABYTES, "never")


def test_moving_the_slider_redraws_the_same_figure(curves):
    widget = exchange_widget(curves, MEGABYTES)
    slider, figure, words = widget.children
    before = words.value
    slider.value = "seldom"
    assert figure.figure.layout.title.text.startswith("seldom")
    assert words.value != before and not math.isnan(figure.figure.data[0].y[0])
