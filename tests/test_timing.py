"""Steps are timed in turn, warm-up uncounted, and compared round by round."""

from labkit.measure import timing


def test_steps_take_turns_and_the_warm_up_does_not_count(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])

    def step(name, seconds):
        def run():
            order.append(name)
            clock[0] += seconds

        return run

    seconds = timing.alternate({"a": step("a", 1.0), "b": step("b", 3.0)}, rounds=2, warmup=1)
    assert order == ["a", "b"] * 3
    assert seconds == {"a": [1.0, 1.0], "b": [3.0, 3.0]}


def test_the_ratio_compares_within_rounds():
    slowing_down = [1.0, 2.0, 4.0]
    assert timing.ratio([2 * second for second in slowing_down], slowing_down) == 2.0
