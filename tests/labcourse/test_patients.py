"""Recordings at a glance: what comes early, what only communicates, and their steps beside each other."""

import pytest

import labcourse
from labtrace.planted import write
from labtrace.trace import Trace


def test_start_up_is_early_communication_is_exposed_and_a_training_is_idle_throughout(tmp_path):
    seen, gains = {}, {}
    for name in ("first_compile", "half_hidden", "loader"):
        planted = write(name, 1, tmp_path / name)
        gains[name] = planted.true_gain
        *seen[name], gaps = labcourse.at_a_glance(Trace(planted.path))
        assert [*gaps] == ["us", "cause", "range_at_begin"] and gaps["us"].is_monotonic_decreasing
    idle, exposed, first = zip(*seen.values(), strict=True)
    assert first[0] > 0.95 and 0.1 < first[2] < 0.35
    assert exposed[1] == pytest.approx(1 - 1 / gains["half_hidden"], abs=0.02) and exposed[0] == exposed[2] == 0
    assert min(idle[0], idle[2]) > 0.3 and idle[1] < 0.02


def test_each_step_has_a_bar_of_each_recording_and_the_medians_are_in_words():
    traces = {name: labcourse.public_trace(f"resnet50_workers{name}") for name in ("0", "4")}
    figure = labcourse.steps_figure(traces)
    assert [len(bars.y) for bars in figure.data] == [6, 6] and "V100" in figure.layout.title.text
    assert figure.layout.meta["text"] == "The wall time of each step. Medians: 0 176 ms, 4 128 ms."
    assert "117.5" in figure.layout.meta["table"]
