"""The launch queue and the sharing of multiprocessors, by cases worked out by hand and by what must always hold."""

import random

import numpy as np
import pytest

from labtrace.errors import LabError
from labtrace.replay.launch_queue import Launch, play, replay_graph


def same(n, host_us, kernel_us, streams=1):
    return [Launch(f"k{i}", host_us, kernel_us, stream=i % streams) for i in range(n)]


def test_host_bound_every_kernel_waits_for_its_launch():
    timeline = play(same(4, host_us=10, kernel_us=8), gap_us=1)
    assert timeline.host_end.tolist() == timeline.kernel_start.tolist() == [10, 20, 30, 40]
    assert timeline.kernel_end.tolist() == [18, 28, 38, 48]
    assert (timeline.wall, timeline.busy, timeline.kernel_sum) == (48, 32, 32)
    assert timeline.idle_share == pytest.approx(16 / 48)
    assert timeline.idle() == {"host_wait": 6, "kernel_wait": 0, "other": 0}
    times, depth = timeline.queue_depth()
    assert (times.tolist(), depth.tolist()) == ([10, 20, 30, 40], [0] * 4), "no kernel ever waits"


def test_compute_bound_delays_grow_and_the_queue_fills():
    timeline = play(same(4, host_us=10, kernel_us=29), gap_us=1)
    assert timeline.kernel_start.tolist() == [10, 40, 70, 100]
    assert (timeline.kernel_start - timeline.host_end).tolist() == [0, 20, 40, 60]
    assert timeline.idle() == {"host_wait": 0, "kernel_wait": 3, "other": 0}
    times, depth = timeline.queue_depth()
    assert dict(zip(times.tolist(), depth.tolist(), strict=True)) == {10: 0, 20: 1, 30: 2, 40: 2, 70: 1, 100: 0}
    assert timeline.wall == 129


def test_the_host_waits_only_where_it_synchronises():
    timeline = play(same(3, host_us=10, kernel_us=50), synchronise={1}, gap_us=0)
    assert timeline.host_start.tolist() == [0, 10, 110], "the second kernel ends at 110"
    assert timeline.idle() == {"host_wait": 10, "kernel_wait": 0, "other": 0}
    assert play(same(2, 10, 50), synchronise={1}).wall == play(same(2, 10, 50)).wall


@pytest.mark.parametrize("kernel_us, cause", [(20, "kernel_wait"), (100, "other")])
def test_an_event_lets_one_stream_wait_for_another(kernel_us, cause):
    long, short = Launch("long", 1, kernel_us, stream=1), Launch("short", 1, 1)
    timeline = play([long, short, Launch("waits", 1, 5, after=(0,))], gap_us=0)
    assert timeline.kernel_start.tolist() == [1, 2, 1 + kernel_us]
    assert timeline.idle(0) == {"host_wait": 0, "kernel_wait": 0, "other": 0} | {cause: kernel_us - 2}
    assert (timeline.busy, timeline.kernel_sum) == (kernel_us + 5, kernel_us + 6)


@pytest.mark.parametrize("after", [(1,), (2,), (-1,)])
def test_a_launch_can_wait_only_for_earlier_ones(after):
    with pytest.raises(LabError, match=r"launch 1 \(late\)"):
        play([Launch("early", 1, 1), Launch("late", 1, 1, after=after)])


def test_a_graph_takes_the_host_out():
    launches = same(2000, host_us=10, kernel_us=8)
    timeline = replay_graph(launches, graph_us=20)
    assert timeline.idle() == {"host_wait": 0, "kernel_wait": 1999, "other": 0}
    assert timeline.host_end.tolist() == [20] * 2000, "one call launches all, however many"
    assert timeline.wall == 20 + 2000 * 8 + 1999
    assert launches[0].host_us == 10, "what was handed over stays as it was"


def test_a_full_queue_blocks_the_host():
    timeline = play(same(5, host_us=1, kernel_us=100), queue_limit=2, gap_us=0)
    assert timeline.kernel_start.tolist() == [1, 101, 201, 301, 401]
    assert timeline.host_end.tolist() == [1, 2, 3, 101, 201], "the fourth launch waits until one of the two has started"
    assert timeline.queue_depth()[1].max() == 2
    for streams, limit in ((1, 1024), (2, 2048)):
        deepest = play(same(2100, host_us=1, kernel_us=1e6, streams=streams)).queue_depth()[1].max()
        assert deepest == limit, "every stream has a queue of its own"


@pytest.mark.parametrize("seed", range(20))
def test_what_always_holds(seed):
    draw = random.Random(seed)
    launches = []
    for i in range(60):
        after = tuple(draw.sample(range(i), k=min(i, draw.choice([0, 0, 0, 2]))))
        share = draw.choice([0.0, 0.4, 1.0])
        launches.append(Launch("k", draw.uniform(0, 20), draw.uniform(0, 20), draw.randrange(3), after, share))
    timeline = play(launches, synchronise={10, 40}, queue_limit=4)
    assert (timeline.kernel_start >= timeline.host_end).all(), "no kernel starts before its launch is done"
    assert (timeline.host_start[1:] >= timeline.host_end[:-1]).all(), "one launch after the other"
    assert timeline.busy <= min(timeline.wall, timeline.kernel_sum) + 1e-9
    for stream in range(3):
        mine = timeline.stream == stream
        start, end = timeline.kernel_start[mine], timeline.kernel_end[mine]
        assert (start[1:] >= end[:-1] + 1).all(), "kernels of one stream never overlap"
        assert timeline.wall >= (end - start).sum()
        assert sum(timeline.idle(stream).values()) == pytest.approx((start[1:] - end[:-1]).sum())
    work = np.array([launch.kernel_us for launch in launches])
    assert (timeline.kernel_end - timeline.kernel_start >= work - 1e-9).all(), "no kernel is faster than alone"
    full = np.array([launch.kernel_us * launch.share for launch in launches])
    assert timeline.busy >= full.sum() - 1e-9, "and all together do no more than the whole GPU can"
    for i, launch in enumerate(launches):
        assert all(timeline.kernel_start[i] >= timeline.kernel_end[j] for j in launch.after)


def on_two_streams(a, b):
    """Plays kernels, each a duration and a share, of stream 0 and of stream 1: all launched already, no pauses."""
    work = [(0, *kernel) for kernel in a] + [(1, *kernel) for kernel in b]
    return play([Launch("k", 0, us, stream=stream, share=share) for stream, us, share in work], gap_us=0)


@pytest.mark.parametrize("share, sums, wall", [(0.2, 1, 0.5), (0.5, 1, 0.5), (0.6, 1.2, 0.6), (1.0, 2, 1)])
def test_overlap_lengthens_the_sum_while_the_wall_time_falls(share, sums, wall):
    work = [(10, share)] * 6
    one, two = on_two_streams(work + work, []), on_two_streams(work, work)
    assert (one.kernel_sum, one.wall, one.busy) == (120, 120, 120)
    assert two.kernel_sum == pytest.approx(sums * 120)
    assert two.wall == two.busy == pytest.approx(wall * 120)


def test_a_slower_kernel_delays_its_stream_those_that_wait_for_it_and_the_host():
    launches = [
        Launch("a", 1, 10, share=1.0),
        Launch("b", 1, 10, stream=1, share=1.0),  # from 2 on, both at half speed: a ends at 20, b at 21
        Launch("after b", 1, 4, after=(1,), share=1.0),
        Launch("late", 5, 1),
    ]
    timeline = play(launches, synchronise={2}, gap_us=0)
    assert timeline.kernel_end.tolist() == pytest.approx([20, 21, 25, 31])
    assert timeline.host_start.tolist() == pytest.approx([0, 1, 2, 25])


def test_nothing_takes_no_time():
    for times in (play([]), replay_graph([], graph_us=20)):
        assert (times.wall, times.busy, times.kernel_sum, times.idle_share) == (0, 0, 0, 0)


def test_a_full_queue_holds_the_host_up_where_kernels_share_too():
    launches = [Launch("k", 0, 10, share=0.5)] * 3 + [Launch("other", 0, 1, stream=1, share=0.1)]
    assert play(launches, queue_limit=1, gap_us=0).host_end.tolist() == [0, 0, 10, 10]
