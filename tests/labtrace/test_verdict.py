"""Verdicts on traces whose cause is known: of waits, of the host's work, of the longest gaps, and of damaged files."""

from contextlib import nullcontext

import pytest
from synthetic_trace import SyntheticTrace

from labtrace import Trace
from labtrace.errors import LabError
from labtrace.replay.recorded_replay import ReplayWarning


def verdict(trace):
    return trace.summary().iloc[0]


@pytest.mark.parametrize("call", ["hipMemcpyWithStream", "cudaMemcpyAsync"])
@pytest.mark.parametrize("stream", [7, 20])
def test_a_blocking_copy_is_a_wait_whatever_its_name_and_stream(load, call, stream):
    """20 kernels of 5 ms, each followed by a copy whose call blocks the host until it is done; then 100 us of host."""
    trace = SyntheticTrace()
    for now in range(0, 20 * 5130, 5130):
        trace.launch(now, now + 10, 5000)
        correlation = trace.call(now + 5, 5025, call, "hip_runtime")
        trace.kernel(now + 5015, 10, correlation, name="CopyDeviceToHost", stream=stream)
    trace = load(trace)
    wall = 20 * 5130 - 130 + 15
    assert trace.temporal().set_index("part")["us"]["wall"] == pytest.approx(wall, rel=0.001)
    if stream == 7:  # the copy follows the kernel, so without kernels the host never waits
        assert trace.what_if(kernels=0).timeline.wall < 0.05 * wall
        found = verdict(trace)
        assert found["bound_by"] == "compute" and found["cost_of_host"] < 0.03
    else:  # nothing but the wait of the host keeps the copy behind the kernel: a wait for another stream
        assert verdict(trace)["cost_of_host"] < 0.05


def test_a_copy_that_waits_for_its_stream_leaves_the_other_streams_alone(load):
    trace = SyntheticTrace()
    for now in range(0, 20_000, 1000):
        trace.launch(now, now + 10, 990, stream=24).launch(now + 5, now + 15, 300)
        correlation = trace.call(now + 10, 310, name="cudaMemcpyAsync")
        trace.kernel(now + 316, 2, correlation, "Memcpy DtoH (Device -> Pageable)", category="gpu_memcpy")
    faster = load(trace).what_if(host=0.0).timeline
    assert faster.host_end[-1] < 0.45 * 20_000, "the host waits for 300 of 1000 us, and not for the other stream"


def test_a_busy_gpu_bounds_the_training_even_if_the_waits_do_not_show(load):
    trace, now = SyntheticTrace(), 0
    for _ in range(30):  # the host is ahead by 300 us, and then spins in a call that tells nothing
        trace.launches(10, now, now + 100, 490, every=5, gpu_every=500)
        trace.operator("custom::spin", now + 55, 4900)
        now += 5000
    found = verdict(load(trace))
    assert found["bound_by"] == "compute" and found["first_remedy"] == ""
    assert found["verdict"] == "The GPU is busy 98% of the time, entirely with matrix products."
    assert "replay without kernels" in found["why"]
    with pytest.raises(LabError, match="host waited in a way that does not show"):
        load(trace).remedies()


def test_a_host_that_is_ahead_and_only_launches_need_not_have_waited(load):
    """400 launches of 10 us each: as long as the GPU's work, which ends just after them."""
    found = verdict(load(SyntheticTrace().launches(400, 0, 300, 9.6, every=10, call_duration=9.5)))
    assert found["bound_by"] == "several" and "does not show" not in found["why"]


def test_a_loop_that_reads_the_gpu_s_memory_is_a_wait_that_does_not_show(load):
    trace, now = SyntheticTrace(), 0
    for _ in range(20):  # 20 launches, then 2.5 ms without a call, until just before the GPU is done
        trace.launches(20, now, now + 250, 195, every=100, gpu_every=200)
        now += 4100
    trace.launch(now, now + 250, 12_000)  # without which, too, the GPU bounds the training
    with pytest.raises(LabError, match="host waited in a way that does not show"):
        load(trace).remedies()


@pytest.mark.parametrize(("host_us", "told"), [(300, False), (9000, True)])
def test_what_is_before_the_gpu_s_first_work_is_told(host_us, told, load):
    trace = SyntheticTrace().range("ProfilerStep#1", 0, host_us + 1000).range("prepare", 10, host_us - 10)
    found = verdict(load(trace.launches(10, host_us, host_us + 20, 199, every=10, gpu_every=200)))
    said = "82% of the recorded step is before or after the GPU's work, mostly in prepare"
    assert found["verdict"].startswith(f"{said}; of the rest, the GPU is busy" if told else "The GPU is busy")
    assert (found["bound_by"] == "unknown") == told


INTEL = "urEnqueueKernelLaunchWithArgsExp"
WAITS = [(INTEL, wait) for wait in ("zeEventHostSynchronize", "zeDeviceSynchronize", "urQueueFinish")]


@pytest.mark.parametrize(("launch", "wait"), [*WAITS, ("cudaLaunchKernel", "cudaStreamSynchronize")])
def test_waits_of_every_maker_are_waits(load, launch, wait):
    trace = SyntheticTrace()
    for step in range(20):
        for number in range(10):
            call = trace.call(5100 * step + 5 * number, 4, launch, category="xpu_runtime")
            trace.kernel(5100 * step + 40 + 500 * number, 490, call)
        trace.event("xpu_sync", wait, 5100 * step + 60, 4980, pid=-1)
    found = verdict(load(trace))
    assert found["bound_by"] == "compute" and "by halving this time (SIMULATED" in found["verdict"]


@pytest.mark.parametrize("runtime", [True, False])
def test_lost_kernels_of_intel_are_found(load, runtime):
    trace = SyntheticTrace()
    for number in range(40):
        if runtime:
            call = trace.call(50 * number, 10, INTEL, category="xpu_runtime")
        appended = trace.call(50 * number + 2, 6, "zeCommandListAppendLaunchKernel", category="xpu_driver")
        call = call if runtime else appended
        if number < 10 or number >= 30:
            trace.kernel(50 * number + 15, 30, call)
    found = load(trace)
    assert found.audit()["events"].tolist() == [20] and verdict(found)["bound_by"] == "unknown"


@pytest.mark.parametrize("copy", ["Memcpy HtoD (Pageable -> Device)", "Memcpy M2D (MEMORY(Unknown) -> DEVICE)"])
def test_a_pageable_copy_blocks_the_host_though_its_call_returns_a_little_early(load, copy):
    """Each step: a copy of 3 ms, whose call waits for kernels for 14 ms, and ends 30 us before it; 75 of 200 us."""
    trace = SyntheticTrace()
    for step in range(8):
        begin, waits = 18_040 * step, 14_000 * (step > 0)
        correlation = trace.call(begin - waits, 2985 + waits, "cudaMemcpyAsync")
        trace.kernel(begin + 15, 3000, correlation, copy, category="gpu_memcpy")
        trace.launches(75, begin + 3005, begin + 3016, 199, every=10, gpu_every=200, call_duration=8)
    found = verdict(load(trace))
    assert found["bound_by"] == "compute" and found["cost_of_host"] < 0.02, found["why"]


def test_a_gap_waits_for_the_host_until_the_launch_has_ended_and_then_for_the_kernel(load):
    """30 steps, each a graph of 100 kernels in 1.2 ms, which begin 1.99 ms after its call, and a synchronise."""
    trace = SyntheticTrace()
    for begin in range(0, 30 * 4000, 4000):
        correlation = trace.call(begin, 60, "cudaGraphLaunch")
        for number in range(100):
            trace.kernel(begin + 1990 + 12 * number, 11, correlation)
        trace.call(begin + 80, 1990 + 1200 - 80, "cudaStreamSynchronize")
    trace = load(trace)
    idle = trace.idle().query("scope == 'device'").set_index("cause")["us"]
    each = 4000 - 100 * 12 + 1  # from the last kernel of a replay to the first of the next
    assert idle["other"] == 29 * (1990 - 60) and idle["host_wait"] == 29 * (each - (1990 - 60))
    assert trace.gaps(1)["cause"].item() == "other"
    found = verdict(trace)
    assert found["launched_of_idle"] == pytest.approx(idle["other"] / idle.sum())
    assert "for launched kernels to begin: nothing on the host can bring" in found["verdict"]


SLOW_ONCE = {
    "modules loaded at some launches": {place: "cudaLaunchKernel" for place in ((0, 3), (1, 7), (8, 8))},
    "the context": {(2, 5): "cudaFree"},
    "made twice": {(1, 5): "cudaHostAlloc", (2, 6): "cudaHostAlloc"},
}


@pytest.mark.parametrize("slow", SLOW_ONCE.values(), ids=SLOW_ONCE)
@pytest.mark.parametrize("marked", [True, False])
def test_slow_calls_that_are_made_once_are_start_up_and_the_verdict_is_on_the_rest(load, slow, marked):
    trace, now = SyntheticTrace(), 0
    for step in range(20):
        begin = now
        for number in range(10):
            name = slow.get((step, number), "")
            if name and name != "cudaLaunchKernel":
                trace.call(now, 50_000, name)
            now += 50_000 if name else 0
            took = 50_004 if name == "cudaLaunchKernel" else 4
            trace.launch(now - took + 4, now + 6, 10, call_duration=took)
            now += 100
        if marked:
            trace.range(f"ProfilerStep#{step}", begin, now - begin)
    trace = load(trace)
    startup = 50_000 * len(slow)
    share = startup / trace.temporal().set_index("part")["us"]["wall"]
    found, remedies = verdict(trace), trace.remedies().set_index("cause")
    assert remedies.index[-1] == "start-up" and remedies["us"]["start-up"] == pytest.approx(startup, rel=0.02)
    assert found["verdict"].startswith(f"{share:.0%} of this recording is start-up; of the rest, the GPU waits 90%")
    assert found["first_remedy"] == "launches" and remedies["times_faster_at_most"]["launches"] < 11


def test_a_capture_is_start_up(load):
    trace = SyntheticTrace()
    for begin in range(0, 80_000, 2000):
        trace.launches(10, begin, begin + 6, 20, every=40)
        trace.call(begin + 450, 5, "cudaStreamBeginCapture")
        trace.call(begin + 1150, 3)  # captured: runs nothing
        trace.call(begin + 1940, 5, "cudaStreamEndCapture")
    captured = load(trace)
    assert captured.remedies()["cause"].iloc[-1] == "start-up" and captured.audit().empty


def test_a_gap_has_the_name_of_what_covers_most_of_it_on_the_launching_thread(load):
    trace = SyntheticTrace().launch(0, 5, 10).range("step", 15, 1000)
    trace.event("python_function", "train.py(1): main", 0, 1000)
    for image in range(8):  # 84 % of the gap from 15 to 1015, in eight parts
        trace.event("python_function", "data.py(7): augment", 20 + 110 * image, 105)
        trace.operator("aten::rot90", 25 + 110 * image, 40)
    trace.operator("aten::elsewhere", 20, 950, tid=99).operator("aten::copy_", 995, 30).copy(1010, 1015, 20)
    (gap,) = load(trace).gaps(1).itertuples()
    assert gap.us == 1000 and gap.operator_at_end == "aten::copy_"
    assert gap.filled_by == "data.py(7): augment" and gap.share_filled == pytest.approx(0.84)


def test_a_replay_says_in_two_lines_what_it_is(load):
    played = load(on_a_gpu()).what_if(host=0.5)
    assert len(repr(played)) < 300 and "200 launches" in repr(played) and "'host': 0.5" in repr(played)


def on_a_gpu(number=200, lost=()):
    trace = SyntheticTrace()
    for i in range(number):
        call = trace.call(10 * i, 4)
        if i not in lost:
            trace.kernel(10 * i + 5 + 3 * i, 12, call, name=f"kernel {i % 7}")
    return trace


# Launches whose kernel is lost; of how many the audit says so; whether there is a verdict, and a replay.
LOST = {
    "a block": (range(60, 120), [60], False, LabError),
    "a quarter": (range(1, 200, 4), [50], False, LabError),
    "a few": ([77, 78, 79], [3], True, ReplayWarning),
    "the first tenth, recorded too late": (range(20), [20], True, None),
    "the last quarter, recorded too short": (range(150, 200), [], True, None),
}


@pytest.mark.parametrize(("lost", "events", "judged", "refused"), LOST.values(), ids=LOST)
def test_lost_kernels_come_first_unless_they_ran_outside_of_the_recording(load, lost, events, judged, refused):
    trace = load(on_a_gpu(lost=lost))
    found, audit = verdict(trace), trace.audit()
    unsound = f"This recording is not sound: {len(lost)} launches whose"
    assert audit["events"].tolist() == events and found["why"].startswith(unsound) == bool(refused)
    assert audit["what"].str.contains("not recorded yet").all() != bool(refused)
    assert (found["bound_by"] != "unknown") == judged == (found["times_faster_at_most"] > 0)
    raised = pytest.warns if refused is ReplayWarning else pytest.raises if refused else nullcontext
    with raised(refused, **({"match": f"not sound: {len(lost)} launches"} if refused else {})):
        trace.remedies()


def test_fewer_files_than_ranks_are_told_where_ranks_are_compared(tmp_path):
    for rank in (0, 1):
        trace = SyntheticTrace(rank=rank, distributedInfo={"rank": rank, "world_size": 8})
        trace.launches(40, 0, 6, 10, every=20).launch(805, 810, 100 - 40 * rank, name="ncclDevKernel_AllReduce")
        trace.save(tmp_path / f"{rank}.json")
    both = Trace(tmp_path)
    communication = both.communication()
    assert communication["ranks"].tolist() == ["2 of 8"] * 2 and communication["straggler"].isna().all()
    assert communication["waited_us"].tolist() == [40, 0]
    assert both.summary()["why"].str.startswith("6 of 8 ranks have no file here").all()
    with pytest.warns(ReplayWarning, match="6 of 8 ranks"):
        both.remedies()
    assert "of 8 (world_size)" in both.audit()["what"][0]
    alone = Trace(tmp_path / "0.json")
    assert alone.audit()["tables"].tolist() == [""] and "no file" not in alone.summary()["why"].item(), "it is sound"


STEPS = [
    (lambda step, kernel: 100 * (1 + (7 * step + 3 * kernel) % 5 / 4), {}, "Now and then kernels take"),
    (lambda step, kernel: 80 if step == 7 else 280, {}, "The GPU is busy"),  # a last batch that is small
    (lambda step, kernel: 280 if step > 3 else 200, {}, "From step 4 on kernels take 1.40 times as long"),
    (lambda step, kernel: 280, {"blocks per SM": 0.1}, "more blocks for sgemm could bring up to"),
]


@pytest.mark.parametrize(("us", "arguments", "said"), STEPS)
def test_kernels_that_vary_or_do_not_fill_the_gpu(load, us, arguments, said):
    trace, now = SyntheticTrace(), 10
    for step in range(8):
        begin = now
        for kernel in range(10):
            trace.launch(begin + 5 * kernel, now + 10, us(step, kernel), name="sgemm")
            trace.events[-1]["args"] |= arguments
            now += us(step, kernel) + 1
        trace.call(begin + 60, now - begin - 50, "cudaDeviceSynchronize")
        trace.range(f"ProfilerStep#{step}", begin, now - begin + 10)
        now += 20
    assert said in verdict(load(trace))["verdict"]


def test_launches_that_return_after_their_kernels_are_waits(load):
    trace = SyntheticTrace().launches(40, 0, 6, 60, every=100, call_duration=67)
    assert "(each launch returns after its kernel): no CUDA_LAUNCH_BLOCKING" in verdict(load(trace))["verdict"]
