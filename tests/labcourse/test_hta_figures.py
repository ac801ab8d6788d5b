"""The course paper's figures from HTA's tables."""

import pandas
import pytest

import labcourse

TABLES = {
    2: {"kernel_type": "MEMORY", "name": ["Memcpy DtoD (Device -> Device)", "Memset (Device)"], "sum (us)": [3, 1]},
    4: {"launch_delay": [99, 100, 101, 500]},
    6: {"gpu_duration": [5, 9, 60], "cpu_duration": [9, 5, 70]},
    7: {"idle_time(us)": [60.0], "compute_time(us)": [30.0], "non_compute_time(us)": [10.0]},
}  # fmt: skip


@pytest.mark.parametrize(("number", "shown"), [(2, [0.75, 0.25]), (4, [101, 500]), (6, [9]), (7, [0.6, 0.3, 0.1])])
def test_a_figure_draws_shares_or_the_launches_beyond_the_cutoff(number, shown):
    table, trace = pandas.DataFrame(TABLES[number]), labcourse.public_trace("rtx5080_cuda_graph")
    figure = labcourse.figure_again(number, {"one": table}, {"one": trace})
    assert sorted(value for bar in figure.data for value in bar.x) == sorted(shown)
    assert figure.layout.title.text.startswith(f"Figure {number}: ") and "Beware" in figure.layout.meta["text"]
