"""The figure of a step over the batch size tells a host-bound step from a busy GPU, and its widget redraws it."""

import pytest

from labkit import course
from labkit.simulate import step_memory, step_operators


@pytest.fixture(scope="module")
def steps(tiny):
    return {
        batch: (step_operators(tiny(), batch_size=batch, size=32), step_memory(tiny(), batch_size=batch, size=32))
        for batch in (1, 16)
    }


def test_the_figure_tells_a_host_bound_from_a_busy_gpu(steps):
    slow, fast = (course.batch_figure(steps, "T4", host_us) for host_us in (200.0, 0.1))
    assert list(slow.data[0].x) == [1, 16]
    assert slow.data[0].y[0] == 1 and slow.data[0].y[-1] > fast.data[0].y[-1]
    assert slow.data[1].y[0] > 0.9 and list(slow.data[2].y) == list(fast.data[2].y)
    assert list(slow.data[2].y) == [held / 1e9 for _, held in steps.values()]
    assert "SIMULATED" in slow.layout.title.text and slow.layout.meta["text"].startswith("SIMULATED")
    assert f"{slow.data[0].y[-1]:.2f}" in slow.layout.meta["text"] and "batch 16" in slow.layout.meta["text"]


def test_the_widget_redraws_with_every_control(steps):
    step, device, host, figure, words = course.batch_widget({"tiny": steps}).children
    device.value, host.value = "T4", 200
    assert "T4, 200 µs" in figure.figure.layout.title.text and "T4, 200 µs" in words.value
