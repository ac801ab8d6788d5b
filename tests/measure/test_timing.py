"""Steps are timed in turn, synchronised, warm-up uncounted, and compared round by round."""

import pytest

from labcourse.stand_ins import FakeGPU
from labkit.measure.timing import alternate, in_order, ratio, spread


def test_on_an_asynchronous_device_the_work_is_measured_and_not_the_launch():
    gpu, order = FakeGPU(launch=1e-5), []

    def step(name, seconds):
        def run():
            order.append(name)
            gpu.launch(seconds)

        return run

    gpu.launch(5.0)  # somebody else's work, still under way
    steps = {"a": step("a", 1.0), "b": step("b", 3.0)}
    seconds = alternate(steps, rounds=2, warmup=1, synchronise=gpu.synchronise, clock=gpu.clock)
    assert order == ["a", "b", "b", "a", "b", "a"]
    assert seconds == {"a": pytest.approx([1.00001] * 2), "b": pytest.approx([3.00001] * 2)}


@pytest.mark.parametrize("n", [2, 3, 5])
def test_no_step_keeps_a_place_or_a_neighbour_to_itself(n):
    rounds = [in_order([*range(n)], turn) for turn in range(2 * n)]
    assert all(sorted(places) == sorted([*range(n)] * 2) for places in zip(*rounds, strict=True))
    assert all(order[1] != 0 or order[0] == 1 for order in rounds[:1]) and rounds[0] != rounds[1]


def test_the_ratio_compares_within_rounds():
    slowing_down = [1.0, 2.0, 4.0]
    assert ratio([2 * second for second in slowing_down], slowing_down) == 2.0


def test_the_spread_is_a_share_of_the_median():
    assert spread([9.0, 10.0, 10.0, 11.0]) == pytest.approx(0.075)
