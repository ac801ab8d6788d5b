"""Verdicts on traces whose cause is known: of waits, of the host's work, of the longest gaps, and of damaged files."""

from random import Random

import pytest
from synthetic_trace import GPU, SyntheticTrace

import labkit
from labkit.simulate import what_if
from labtrace.errors import LabkitError
from labtrace.replay.recorded_replay import ReplayWarning


@pytest.fixture
def load(tmp_path):
    return lambda trace: labkit.Trace(trace.save(tmp_path / "trace.json"))


def verdict(trace):
    return trace.summary().iloc[0]


def blocking(copy="CopyDeviceToHost", call="hipMemcpyWithStream", stream=7):
    """20 kernels of 5 ms, each followed by a copy whose call blocks the host until it is done; then 100 us of host."""
    trace, now = SyntheticTrace(), 0
    for _ in range(20):
        trace.launch(now, now + 10, 5000)
        correlation = next(trace.correlations)
        trace.event("hip_runtime", call, now + 5, 5025, correlation=correlation)
        trace.kernel(now + 5015, 10, correlation, name=copy, stream=stream)
        now += 5130
    return trace


@pytest.mark.parametrize("call", ["hipMemcpyWithStream", "cudaMemcpyAsync"])
@pytest.mark.parametrize("stream", [7, 20])
def test_a_blocking_copy_is_a_wait_whatever_its_name_and_stream(load, call, stream):
    trace = load(blocking(call=call, stream=stream))
    wall = 20 * 5130 - 130 + 15
    assert trace.temporal().set_index("part")["us"]["wall"] == pytest.approx(wall, rel=0.001)
    if stream == 7:  # the copy follows the kernel, so without kernels the host never waits
        assert what_if(trace, kernels=0).timeline.wall < 0.05 * wall
        found = verdict(trace)
        assert found["bound_by"] == "compute" and found["cost_of_host"] < 0.03
    else:  # nothing but the wait of the host keeps the copy behind the kernel: a wait for another stream
        assert verdict(trace)["cost_of_host"] < 0.05


def test_a_copy_that_waits_for_its_stream_leaves_the_other_streams_alone(load):
    trace = SyntheticTrace()
    for now in range(0, 20_000, 1000):
        trace.launch(now, now + 10, 990, stream=24)
        trace.launch(now + 5, now + 15, 300)
        correlation = trace.call(now + 10, 310, name="cudaMemcpyAsync")
        trace.kernel(now + 316, 2, correlation, "Memcpy DtoH (Device -> Pageable)", category="gpu_memcpy")
    found = load(trace)
    faster = what_if(found, host=0.0).timeline
    assert faster.host_end[-1] < 0.45 * 20_000, "the host waits for 300 of 1000 us, and not for the other stream"


def test_without_a_verdict_if_the_waits_do_not_show(load):
    trace, now = SyntheticTrace(), 0
    for _ in range(30):  # the host is ahead by 300 us, and then spins in a call that tells nothing
        for number in range(10):
            trace.launch(now + 5 * number, now + 100 + 500 * number, 490)
        trace.operator("custom::spin", now + 55, 4900)
        now += 5000
    found = verdict(load(trace))
    assert found["bound_by"] == "unknown" and found["first_remedy"] == ""
    assert "replay without any kernel" in found["why"]
    with pytest.raises(LabkitError, match="host waited in a way that does not show"):
        load(trace).remedies()


def steps(extra, every=2000, number=40):
    """Steps of 10 launches with kernels of 20 us; `extra(trace, begin, step)` adds a call after them, of 1,500 us."""
    trace = SyntheticTrace()
    for step in range(number):
        begin = step * every
        for launch in range(10):
            trace.launch(begin + 40 * launch, begin + 40 * launch + 6, 20)
        extra(trace, begin + 450, step)
    return trace


HOST_WORK = {
    "memory calls": lambda trace, begin, step: trace.call(begin, 1500, "cudaMalloc"),
    "other host work": lambda trace, begin, step: trace.event("python_function", "augment.py(3): rotate", begin, 1500),
    "data loading": lambda trace, begin, step: trace.range("enumerate(DataLoader)#next", begin, 1500),
    "waiting calls": lambda trace, begin, step: trace.call(begin, 1500, "hipStreamSynchronize"),
}


@pytest.mark.parametrize("cause", HOST_WORK)
def test_the_work_of_the_host_is_divided_by_its_cause(load, cause):
    trace = load(steps(HOST_WORK[cause]))
    remedies = trace.remedies().set_index("cause")
    assert remedies.index[0] == cause and remedies["try"].nunique() == len(remedies)
    wall = 39 * 2000 + 386 - 6
    assert remedies.loc[cause, "us"] == pytest.approx(39 * (1500 if cause != "other host work" else 1600), rel=0.06)
    assert remedies.loc["launches", "us"] < 0.3 * wall
    assert verdict(trace)["bound_by"] == ("data" if cause == "data loading" else "host")


def test_a_first_call_a_hundred_times_as_long_is_start_up_and_so_is_a_capture(load):
    def first(trace, begin, step):
        trace.call(begin, 900_000 if step == 0 else 10, "cudaFuncGetAttributes")

    slow_start = steps(first)
    for event in slow_start.events[31:]:
        event["ts"] += 900_000
    found = verdict(load(slow_start))
    assert found["first_remedy"] == "start-up" and "start-up of first calls" in found["why"]
    assert "One gap is" in found["why"] and "filled by cudaFuncGetAttributes" in found["why"]

    def capture(trace, begin, step):
        trace.call(begin, 5, "cudaStreamBeginCapture")
        trace.call(begin + 700, 3)  # captured: runs nothing
        trace.call(begin + 1490, 5, "cudaStreamEndCapture")

    captured = load(steps(capture))
    assert verdict(captured)["first_remedy"] == "start-up" and captured.audit().empty


def test_three_gaps_that_are_most_of_the_idle_time_are_named_with_what_filled_them(load):
    trace, now = SyntheticTrace(), 0
    for step in range(40):
        trace.launch(now, now + 6, 90)
        if step in (10, 30):
            trace.operator("aten::empty", now + 5, 25_000)
            trace.call(now + 10, 24_000, "cudaFree")
            now += 25_000
        now += 100
    found = load(trace)
    gaps = found.gaps(2)
    assert gaps["filled_by"].tolist() == ["cudaFree"] * 2 and gaps["share_filled"].min() > 0.9
    told = verdict(found)
    assert told["first_remedy"] == "memory calls" and "calls that give and free memory" in told["why"]
    assert "2 gaps are 99% of the idle time: 25.0 ms filled by cudaFree, 25.0 ms filled by cudaFree." in told["why"]


def test_a_gap_has_the_name_of_what_covers_most_of_it_on_the_launching_thread(load):
    trace = SyntheticTrace()
    trace.launch(0, 5, 10)
    trace.range("step", 15, 1000)
    trace.event("python_function", "train.py(1): main", 0, 1000)
    for image in range(8):  # 84 % of the gap from 15 to 1015, in eight parts
        trace.event("python_function", "data.py(7): augment", 20 + 110 * image, 105)
        trace.operator("aten::rot90", 25 + 110 * image, 40)
    trace.operator("aten::elsewhere", 20, 950, tid=99)
    trace.operator("aten::copy_", 995, 30)
    trace.copy(1010, 1015, 20)
    (gap,) = load(trace).gaps(1).itertuples()
    assert gap.us == 1000 and gap.operator_at_end == "aten::copy_"
    assert gap.filled_by == "data.py(7): augment" and gap.share_filled == pytest.approx(0.84)


def test_a_replay_says_in_two_lines_what_it_is(load):
    played = what_if(load(on_a_gpu()), host=0.5)
    assert len(repr(played)) < 300 and "200 launches" in repr(played) and "'host': 0.5" in repr(played)


def on_a_gpu(number=200, lost=()):
    trace = SyntheticTrace()
    for i in range(number):
        call = trace.call(10 * i, 4)
        if i not in lost:
            trace.kernel(10 * i + 5 + 3 * i, 12, call, name=f"kernel {i % 7}")
    return trace


@pytest.mark.parametrize("lost", [range(60, 120), range(1, 200, 4)], ids=["a block", "a quarter"])
def test_lost_kernels_come_first_in_the_verdict_and_there_is_no_factor(load, lost):
    trace = load(on_a_gpu(lost=lost))
    found = verdict(trace)
    assert found["why"].startswith(f"A remedy cannot be named: This recording is not sound: {len(lost)} launches whose")
    assert found["bound_by"] == "unknown" and found["times_faster_at_most"] != found["times_faster_at_most"]
    with pytest.raises(LabkitError, match="not sound.*missing: dropped.*Record again"):
        trace.remedies()


def test_kernels_that_are_lost_are_told_and_do_not_hide_the_verdict(load):
    trace = load(on_a_gpu(lost=[77, 78, 79]))
    found = verdict(trace)
    assert found["why"].startswith("This recording is not sound: 3 launches") and found["bound_by"] != "unknown"
    with pytest.warns(ReplayWarning, match="not sound: 3 launches"):
        trace.remedies()


@pytest.mark.parametrize(
    ("lost", "what"),
    [(range(20), "before the first recorded kernel"), (range(150, 200), "after the last recorded kernel")],
    ids=["the first tenth", "the last quarter"],
)
def test_what_ran_before_or_after_the_recording_leaves_the_rest_to_be_judged(load, lost, what):
    trace = load(on_a_gpu(lost=lost))
    (row,) = trace.audit().to_dict("records")
    assert what in row["what"] and row["events"] == len(lost) and row["tables"] == ""
    assert "not sound" not in verdict(trace)["why"] and verdict(trace)["bound_by"] != "unknown"


def test_replays_of_one_graph_are_compared_with_each_other(load):
    def replays(lost):
        trace = SyntheticTrace()
        for replay in range(10):
            graph = trace.call(1000 * replay, 9, "cudaGraphLaunch")
            for number in range(40):
                if (replay, number) not in lost:
                    trace.kernel(1000 * replay + 20 + 20 * number, 19, graph, name=f"kernel {number // 5}")
        return load(trace)

    assert replays([]).audit().empty
    row = replays([(3, 1), *((4, number) for number in range(9, 28))]).audit().iloc[0]
    assert "replays of a graph" in row["what"] and row["events"] == 20
    random = Random(0)
    found = verdict(replays([(replay, number) for replay in range(10) for number in random.sample(range(40), 10)]))
    assert found["bound_by"] == "unknown" and "missing in replays of a graph" in found["why"]


def test_fewer_files_than_ranks_are_told_where_ranks_are_compared(tmp_path):
    for rank in (0, 1):
        trace = SyntheticTrace(rank=rank, distributedInfo={"rank": rank, "world_size": 8})
        for i in range(40):
            trace.launch(20 * i, 20 * i + 6, 10)
        trace.launch(805, 810, 100 - 40 * rank, name="ncclDevKernel_AllReduce")
        trace.save(tmp_path / f"{rank}.json")
    both = labkit.Trace(tmp_path)
    communication = both.communication()
    assert communication["ranks"].tolist() == ["2 of 8"] * 2 and communication["straggler"].isna().all()
    assert communication["waited_us"].tolist() == [40, 0]
    assert both.summary()["why"].str.startswith("6 of 8 ranks have no file here").all()
    with pytest.warns(ReplayWarning, match="6 of 8 ranks"):
        both.remedies()
    assert "of 8 (world_size)" in both.audit()["what"][0]
    alone = labkit.Trace(tmp_path / "0.json")
    assert alone.audit()["tables"].tolist() == [""], "a file by itself is sound"
    assert alone.communication()["ranks"].item() == "1 of 8" and "no file" not in alone.summary()["why"].item()


def test_kernels_that_overlap_by_microseconds_are_dependent_launches(load):
    trace = SyntheticTrace()
    for i in range(20):
        trace.launch(10 * i, 300 + 20 * i, 24)  # each begins 4 us before the one before it ends
    assert load(trace).audit().empty


def late_kernel(trace):
    next(event for event in trace.events[200:] if event["cat"] == "kernel")["ts"] += 3.6e9


def late_operator(trace):
    trace.operator("aten::add", 3.6e9, 5)


def clock_ahead(trace):
    for event in trace.events:
        event["ts"] += 1e6 if event["cat"] == "kernel" else 0
    trace.operator("aten::item", 3e6, 5)  # the host was recorded for longer


def clock_behind(trace):
    for event in trace.events:
        event["ts"] -= 1e6 if event["cat"] == "kernel" else 0


def durations_0(trace):
    for event in trace.events:
        event["dur"] = 0 if event["cat"] == "kernel" else event["dur"]


DAMAGES = {
    late_kernel: "away from all others",
    late_operator: "away from all others",
    clock_ahead: "two clocks",
    clock_behind: "begin before their launch",
    durations_0: "no duration",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_wrong_time_is_found_and_no_verdict_rests_on_it(load, damage):
    trace = on_a_gpu()
    for place, event in enumerate(trace.events):
        event["ts"] += 20 * place if event["pid"] == GPU else 0  # gaps on the GPU
    assert load(trace).audit().empty
    damage(trace)
    damaged = load(trace)
    assert damaged.audit()["what"].str.contains(DAMAGES[damage]).any(), damaged.audit()
    assert verdict(damaged)["bound_by"] == "unknown" and "not sound" in verdict(damaged)["why"]
