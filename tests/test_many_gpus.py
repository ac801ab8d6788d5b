"""The figure of a step on many GPUs holds the table's numbers, and its widget redraws it in place."""

import pandas
import plotly.graph_objects as go
import pytest

from labkit.course import many_gpus_figure, many_gpus_widget, ring_figure
from labkit.errors import LabkitError


@pytest.fixture
def table():
    """Made up: with each doubling of the GPUs a tenth of the efficiency is lost, over Ethernet two."""
    rows = []
    for batch in (1, 4):
        for network, lost in (("fast", 0.1), ("slow", 0.2)):
            for power in range(4):
                efficiency = 1 - lost * power
                step_us = batch * 1000 / efficiency
                row = {"SIMULATED": True, "device": "H100", "host_us": 5.0, "scaling": "weak"}
                row |= {"network": network, "gpus": 2**power, "batch": batch, "step_us": step_us}
                row |= {"exposed_us": 0.5 * step_us, "images_per_s": 2**power * batch * 1e6 / step_us}
                rows.append(row | {"efficiency": efficiency, "memory": 2e9 * batch})
    return pandas.DataFrame(rows)


def test_the_figure_has_curve_step_and_memory(table):
    figure = many_gpus_figure(table, 4, "slow", 4, 5.0)
    assert type(figure) is go.Figure
    assert "H100: 4 GPUs are worth <b>2.4</b>" in figure.layout.title.text
    fast, slow, here, compute, exposed, memory = figure.data
    assert (fast.name, list(fast.y)) == ("fast", pytest.approx([1, 0.9, 0.8, 0.7]))
    assert list(slow.y) == pytest.approx([1, 0.8, 0.6, 0.4]) and (here.x[0], here.y[0]) == (4, pytest.approx(0.6))
    step_ms = 4 / 0.6
    assert [bar.x[0] for bar in (compute, exposed)] == pytest.approx([step_ms / 2, step_ms / 2])
    assert memory.x[0] == 8 and figure.layout.barmode == "stack"
    axes = [axis.title.text for axis in figure.select_xaxes()]
    assert axes == ["GPUs", "milliseconds", "gigabytes"]


def test_a_point_that_is_not_in_the_table_is_an_error(table):
    with pytest.raises(LabkitError, match=r"gpus=3.*0 rows.*\[1, 2, 4, 8\]"):
        many_gpus_figure(table, 3, "fast", 1, 5.0)
    with pytest.raises(LabkitError, match=r"host_us=1: 0 rows.*\[5.0\]"):
        many_gpus_figure(table, 2, "fast", 1, 1.0)
    with pytest.raises(LabkitError, match="2 rows"):
        many_gpus_figure(pandas.concat([table, table]), 2, "fast", 1, 5.0)


def test_the_hosts_slider_takes_the_curves_of_that_host(table):
    slow = table.assign(host_us=40.0, efficiency=1.0)
    gpus, network, batch, host, figure, words = many_gpus_widget(pandas.concat([table, slow])).children
    host.value = 5.0
    assert figure.figure.data[0].y[-1] == pytest.approx(0.7)
    host.value = 40.0
    assert list(figure.figure.data[0].y) == [1, 1, 1, 1] and "40 microseconds of the host" in words.value


def test_each_round_of_the_ring_moves_as_much_and_the_last_leaves_every_sum_everywhere():
    frames = [[list(bar.y) for bar in frame.data] for frame in ring_figure().frames]  # parts, and in them ranks
    assert frames[0] == [[1] * 4] * 4 and frames[-1] == [[4] * 4] * 4
    assert sum(part.count(4) for part in frames[3]) == 4, "one complete sum on each rank"
    for before, after in zip(frames, frames[1:], strict=False):
        changed = [(part, rank) for part in range(4) for rank in range(4) if before[part][rank] != after[part][rank]]
        assert sorted(rank for _, rank in changed) == [0, 1, 2, 3], "each rank receives one part"
