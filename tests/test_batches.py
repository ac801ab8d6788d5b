"""A step at any batch size has the work and the memory of one recorded at that size."""

import pytest

from labkit import show
from labkit.simulate import step_memory, step_operators
from labkit.simulate.batches import any_batch_size


@pytest.fixture(scope="module")
def steps(tiny):
    return any_batch_size(tiny(), size=32)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_work_and_memory_are_those_of_a_recording_at_that_size(tiny, steps, batch_size):
    recorded = step_operators(tiny(), batch_size=batch_size, size=32)
    recorded = [one for one in recorded if not one.is_view]
    scaled = [one for one in steps.operators(batch_size) if not one.is_view]
    for what in ("name", "flops", "bytes_moved", "range"):
        assert [getattr(one, what) for one in scaled] == [getattr(one, what) for one in recorded]
    held = step_memory(tiny(), batch_size=batch_size, size=32)
    assert steps.bytes_held(batch_size) == pytest.approx(held, rel=0.1)


def test_the_figure_tells_a_host_bound_from_a_busy_gpu(steps):
    slow, fast = (show.batch_figure(steps, "T4", host_us) for host_us in (200.0, 0.1))
    assert slow.data[0].y[0] == 1 and slow.data[0].y[-1] > fast.data[0].y[-1]
    assert slow.data[1].y[0] > 0.9 and list(slow.data[2].y) == list(fast.data[2].y)
    assert slow.layout.title.text.startswith("SIMULATED") and "batch 32: " in slow.layout.meta["text"]


def test_the_widget_redraws_with_every_control(steps):
    step, device, host, figure, words = show.batch_widget({"tiny": steps}).children
    device.value, host.value = "T4", 200
    assert "T4, 200 µs a launch" in figure.layout.title.text and "T4, 200 µs a launch" in words.value
