"""The critical path: its parts are known, follow each other, and are all that counts."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_trace import SyntheticTrace

from labtrace import Trace
from labtrace.replay import Launch, Replay, write_trace
from labtrace.replay.trace_file import Source
from labtrace.tables.critical_path import segments


def path_of(trace, tmp_path):
    """The path, {(where, what): us}, after checking that its parts follow each other without a gap."""
    trace = Trace(trace.save(tmp_path / "trace.json"))
    parts = segments(trace.ranks[0])
    ends = parts["begin_us"] + parts["us"]
    assert np.allclose(ends[:-1], parts["begin_us"][1:]) and (parts["us"] > 0).all()
    table = trace.critical_path()
    assert table["us"].sum() == pytest.approx(trace.temporal().set_index("part")["us"]["wall"], abs=1e-6)
    assert table["share_of_wall"].sum() == pytest.approx(1)
    return table.groupby(["where", "what"])["us"].sum().to_dict()


def test_the_host_is_late(tmp_path):
    trace = SyntheticTrace()
    trace.range("labkit: generators forward", 0, 110)
    trace.range("labkit: data", 45, 10)
    for i in range(10):
        trace.launch(20 * i, 20 * i + 6, 5)
    assert path_of(trace, tmp_path) == {
        ("host", "generators forward"): 94,  # from the first kernel at 6 to 110, but for the data
        ("host", "data loading"): 10,
        ("host", "outside of ranges"): 74,  # the last launch is made at 184
        ("between", "launch latency"): 2,
        ("GPU", "matrix products"): 5,
    }


def test_the_gpu_is_late(tmp_path):
    trace = SyntheticTrace()
    for i in range(10):
        trace.launch(5 * i, 10 + 51 * i, 50, name="relu")
    assert path_of(trace, tmp_path) == {("GPU", "pointwise and other"): 500, ("between", "pause between kernels"): 9}


def test_a_stream_waits_for_another(tmp_path):
    trace = SyntheticTrace()
    trace.launch(0, 10, 100)
    trace.launch(5, 111, 20)  # on the same stream, and off the path
    trace.launch(10, 112, 90, name="batch_norm", stream=20)
    assert path_of(trace, tmp_path) == {
        ("GPU", "matrix products"): 100,
        ("GPU", "normalisation"): 90,
        ("between", "pause between kernels"): 2,
    }


@pytest.mark.parametrize("asked", [20, 104])
def test_the_host_waits_in_the_middle(asked, tmp_path):
    trace = SyntheticTrace()
    trace.launch(0, 10, 90)
    trace.call(asked, 105 - asked, "cudaDeviceSynchronize")
    trace.launch(150, 156, 44)
    host = {("host", "outside of ranges"): 54, ("GPU", "matrix products"): 134}
    if asked > 100:  # the GPU was done by then, so the host did not wait
        host = {("host", "outside of ranges"): 144, ("GPU", "matrix products"): 44}
    assert path_of(trace, tmp_path) == {**host, ("between", "launch latency"): 2}


def test_the_host_waits_for_one_stream_while_another_goes_on(tmp_path):
    trace = SyntheticTrace()
    trace.launch(0, 10, 1000, stream=20)
    trace.launch(5, 12, 300)
    correlation = trace.call(20, 305, "cudaMemcpyAsync")
    trace.kernel(313, 10, correlation, "Memcpy DtoH (Device -> Pageable)", category="gpu_memcpy")
    trace.launch(1100, 1110, 50)
    assert path_of(trace, tmp_path) == {
        ("GPU", "matrix products"): 300 + 50,
        ("GPU", "copies"): 10,
        ("host", "outside of ranges"): 1104 - 323,
        ("between", "launch latency"): 2 + 6,
        ("between", "pause between kernels"): 1,
    }


def test_kernels_without_a_launch_follow_one_another(tmp_path):
    trace = SyntheticTrace()
    for begin in (10, 112):
        trace.kernel(begin, 100)
    trace.kernel(300, 50)
    trace.launch(200, 351, 10)
    assert path_of(trace, tmp_path) == {
        ("GPU", "matrix products"): 260,
        ("between", "pause between kernels"): 3,
        ("between", "unknown wait"): 88,
    }


def random_step(seed):
    """Launches on three streams with waits between them, and waits of the host."""
    random = np.random.default_rng(seed)
    busy = random.choice([3.0, 12.0, 30.0])
    launches = []
    for i in range(200):
        after = tuple(random.choice(i, 1).tolist()) if i and random.random() < 0.2 else ()
        host, us = random.exponential(10.0) + 0.5, random.exponential(busy) + 0.5
        launches.append(Launch(f"kernel {i}", round(host, 3), round(us, 3), int(random.choice([7, 7, 20, 24])), after))
    return Replay(
        launches,
        [Source(i, -1, "", "", 0) for i in range(200)],
        set(random.choice(200, 4).tolist()),
        "A100",
        {},
        gap_us=1.0,
    )


@pytest.mark.parametrize("seed", range(12))
def test_nothing_beside_the_path_counts(seed, tmp_path):
    played = random_step(seed)
    trace = Trace(write_trace(played, tmp_path / "trace.json"))
    path = segments(trace.ranks[0])
    wall = played.timeline.kernel_end.max() - played.timeline.kernel_start.min()
    assert path["us"].sum() == pytest.approx(wall, abs=0.01)
    on_it = set(path["name"])
    launches = [one if one.name in on_it else replace(one, kernel_us=0.0) for one in played.launches]
    timeline = replace(played, launches=launches).timeline
    assert timeline.kernel_end.max() - timeline.kernel_start.min() == pytest.approx(wall, rel=0.002)
    # So no remedy can gain more than the time of its cause on the path.
    gains, where = trace.remedies().set_index("cause")["us"], path.groupby("where")["us"].sum()
    assert gains["launches"] <= where.get("host", 0.0) + 0.01 * wall
    assert gains["pointwise and other"] <= where["GPU"] + 0.01 * wall
