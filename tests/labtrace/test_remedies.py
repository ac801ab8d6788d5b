"""The price list of a trace: every bound is the one that arithmetic gives, on traces that were made for it."""

import gzip
import json
from functools import partial

import pytest
from synthetic_trace import SyntheticTrace

from labtrace import Trace
from labtrace.errors import LabError
from labtrace.events.host import divide
from labtrace.replay import Launch
from labtrace.replay.recorded_replay import ReplayWarning
from labtrace.replay.trace_file import Replay, Source, write_trace

POINTWISE, CONV, GEMM, NORM = "vectorized_elementwise_kernel", "cudnn_convolve", "sgemm", "batch_norm"
COPY, SEND = "Memcpy HtoD (Pinned -> Device)", "ncclDevKernel_AllReduce"
MAIN, SIDE = 7, 20


def launched(name, host, us, times=100, stream=MAIN, **more):
    return [Launch(name, host, us, stream, **more)] * times


def step_with_data(data):
    return [Launch(POINTWISE, 2.0 + data, 5.0, MAIN, data_us=data), *launched(POINTWISE, 2.0, 5.0, 99)]


def alternating(*names_and_us, host, times=50):
    return [Launch(name, host, us, MAIN) for name, us in names_and_us] * times


# Launches, positions after which the host waits for the GPU, and the wall times that are left without some causes. The
# wall time goes from the begin of the first kernel to the end of the last.
KNOWN = {
    "the host is late": (launched(POINTWISE, 10.0, 2.0), (), 992, {"launches": 299, "pointwise and other": 990}),
    "the GPU is late": (launched(POINTWISE, 2.0, 10.0), (), 1000, {"launches": 1000, "pointwise and other": 198}),
    "no cliff below": (launched(CONV, 10.0, 9.9), (), 999.9, {"launches": 990, "convolutions": 990}),
    "no cliff above": (launched(CONV, 10.0, 10.1), (), 1010, {"launches": 1010, "convolutions": 990}),
    "two kinds": (
        alternating((CONV, 10.0), (GEMM, 5.0), host=1.0),
        (),
        750,
        {"convolutions": 251, "matrix products": 500, "launches": 750},
    ),
    "data": (step_with_data(1000.0) * 3, (99, 199, 299), 3504, {"data loading": 1504, "launches": 3500}),
    "little data": (step_with_data(100.0) * 3, (99, 199, 299), 1704, {"data loading": 1504, "launches": 1700}),
    "copies": (alternating((COPY, 30.0), (NORM, 10.0), host=1.0), (), 2000, {"copies": 501, "normalisation": 1500}),
    "hidden communication": (
        [*launched(SEND, 1.0, 300.0, 1, SIDE), *launched(POINTWISE, 1.0, 10.0)],
        (),
        1001,
        {"communication": 1001, "pointwise and other": 300},
    ),
    "exposed communication": (
        [*launched(CONV, 1.0, 10.0), Launch(SEND, 1.0, 500.0, SIDE, after=(99,))],
        (),
        1500,
        {"communication": 1000, "convolutions": 600},
    ),
    "waits of the host": (launched(POINTWISE, 10.0, 40.0), range(100), 4990, {"launches": 4000 + 99}),
    "host and GPU by turns": (
        [*launched(CONV, 1.0, 20.0, 50), *launched(POINTWISE, 20.0, 1.0, 50)],
        (49,),
        1000 + 49 * 20 + 21,
        {"launches": 1050, "convolutions": 49 + 50 * 20 + 1, "pointwise and other": 1000 + 50 * 20},
    ),
}


def written(launches, waits, path, rank=0):
    sources = [Source(i, -1, "", "", 0) for i in range(len(launches))]
    played = Replay(launches, sources, set(waits), "A100", {}, gap_us=0.0)
    return write_trace(played, path, rank)


@pytest.mark.parametrize("case", KNOWN)
def test_every_bound_is_exact(case, tmp_path):
    launches, waits, wall, left = KNOWN[case]
    trace = Trace(written(launches, waits, tmp_path / "trace.json.gz"))
    assert trace.temporal().set_index("part")["us"]["wall"] == pytest.approx(wall, rel=1e-3)
    found = trace.remedies().set_index("cause")
    for cause, us in left.items():
        assert found["times_faster_at_most"][cause] == pytest.approx(wall / us, rel=0.01), cause
        assert found["us"][cause] == pytest.approx(wall - us, abs=0.01 * wall), cause
    assert found["us"].is_monotonic_decreasing and found["try"].str.len().min() > 10


def test_the_rank_that_is_waited_for_gains_nothing_by_waiting_less(tmp_path):
    for rank, work in enumerate((10.0, 15.0)):
        sends = 1000.0 if rank else 1500.0  # rank 0 computes less, and waits in the collective
        launches = [*launched(CONV, 1.0, work), Launch(SEND, 1.0, sends, MAIN)]
        written(launches, (), tmp_path / f"rank{rank}.json.gz", rank)
    found = Trace(tmp_path).remedies().set_index(["rank", "cause"])["times_faster_at_most"]
    assert found[0, "waiting for other ranks"] == pytest.approx(2500 / 2000, rel=0.01)
    assert found[1, "waiting for other ranks"] == pytest.approx(1.0, rel=0.01)
    assert found[1, "convolutions"] == pytest.approx(2500 / 1100, rel=0.01)
    both = Trace(tmp_path)
    for settings, message in (({}, "Choose among 0, 1"), ({"rank": 2}, "rank=2.*among 0, 1")):
        with pytest.raises(LabError, match=message):
            both.what_if(**settings)


def test_a_trace_that_cannot_be_played_again_is_refused(tmp_path, monkeypatch):
    path = written(launched(POINTWISE, 10.0, 2.0), (), tmp_path / "trace.json.gz")

    def slower(times, *found):
        return {cause: times * us for cause, us in divide(*found).items()}

    monkeypatch.setattr("labtrace.events.host.divide", partial(slower, 1.1))
    with pytest.warns(ReplayWarning, match="wall time is 1,091 us, and in the recording 992 us"):
        Trace(path).remedies()
    monkeypatch.setattr("labtrace.events.host.divide", partial(slower, 2.0))
    with pytest.raises(LabError, match="cannot predict the effect of a change"):
        Trace(path).remedies()


def test_kernels_that_were_queued_before_the_recording_began_keep_their_place(tmp_path):
    path = written(launched(POINTWISE, 2.0, 10.0), (), tmp_path / "trace.json.gz")
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    calls = [event for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"]
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event not in calls[:30]]
    (tmp_path / "cut.json").write_text(json.dumps(trace))
    cut = Trace(tmp_path / "cut.json")
    played, timeline = cut.what_if(), cut.what_if().timeline
    wall = timeline.kernel_end.max() - timeline.kernel_start.min()
    assert played.gap_us >= 0 and wall == pytest.approx(1000, rel=0.01)
    assert cut.remedies().set_index("cause")["times_faster_at_most"]["launches"] == pytest.approx(1.0, rel=0.01)


BOUNDS = [(2.0, "host"), (4.9, "host"), (5.1, "host"), (9.9, "several"), (10.1, "several"), (40.0, "compute")]


@pytest.mark.parametrize(("kernel_us", "bound_by"), BOUNDS)
def test_the_verdict_has_no_cliff_where_nothing_jumps(kernel_us, bound_by, tmp_path):
    verdict = Trace(written(launched(CONV, 10.0, kernel_us), (), tmp_path / "trace.json")).summary().iloc[0]
    assert verdict["bound_by"] == bound_by
    slower = max(10.0, kernel_us)
    pause = 1.0 if kernel_us < 9 else 0.0  # between kernels, assumed where no kernel waited for another
    assert verdict["cost_of_host"] == pytest.approx(1 - (kernel_us + pause) / slower, abs=0.02)
    assert verdict["cost_of_compute"] == pytest.approx(1 - 10.0 / slower, abs=0.02)
    on_host = verdict["cost_of_host"] > verdict["cost_of_compute"]
    assert verdict["first_remedy"] == ("launches" if on_host else "convolutions")


ADVICE = {
    "16 bits or TF32": ["ampere_sgemm_128x64", "Cijk_Ailk_Bljk_SB_MT128x128x16"],
    "16 bits": ["cutlass_80_tensorop_s1688gemm_128x128"],
    "8-bit numbers or fewer and smaller products": [
        "Cijk_Ailk_Bljk_B_BS_BH_Bias_HA", "nvjet_sm100_tst_128x64", "sm90_xmma_gemm_bf16bf16_bf16f32",
    ],
    "fewer and smaller products": ["bmm_MxE4m3_MxE2m1MxE4m3_Fp32"],
    "32 bits in place of float64": ["ampere_dgemm_64x64_nn", "Cijk_Ailk_Bljk_DB_MT64x64x8"],
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "advice"), [(kernel, one) for one in ADVICE for kernel in ADVICE[one]])
def test_the_advice_leaves_out_what_the_names_of_the_kernels_show(kernel, advice, tmp_path):
    many = Trace(written(launched(kernel, 1.0, 40.0), (), tmp_path / "trace.json"))
    assert f"with matrix products: {advice} could bring" in many.summary()["verdict"].item()


CAPABILITIES = [(7, "16 bits;", '"fp16", "nhwc"'), (8, "16 bits or TF32;", '"bf16", "nhwc"')]


@pytest.mark.parametrize(("capability", "products", "convolutions"), CAPABILITIES)
def test_a_gpu_before_ampere_is_told_to_use_neither_tf32_nor_bf16(capability, products, convolutions, tmp_path):
    kernels = [*launched("volta_sgemm_128x64", 1.0, 40.0), *launched(CONV, 1.0, 40.0)]
    path = written(kernels, (), tmp_path / "trace.json")
    content = json.loads(path.read_text()) | {"deviceProperties": [{"id": 0, "computeMajor": capability}]}
    path.write_text(json.dumps(content))
    advice = Trace(path).remedies().set_index("cause")["try"]
    assert advice["matrix products"].startswith(products) and advice["convolutions"].endswith(convolutions)


def test_where_nothing_else_is_left_no_factor_is_told(tmp_path):
    verdict = Trace(SyntheticTrace().copy(0, 10, 100).save(tmp_path / "trace.json")).summary()["verdict"].item()
    assert "could bring over 100x (SIMULATED" in verdict


@pytest.mark.parametrize("changed", [{"host": -1}, {"kernels": float("nan")}, {"data": float("inf")}], ids=str)
def test_a_factor_that_is_none_is_refused(changed, tmp_path):
    trace = Trace(written(launched(GEMM, 10.0, 2.0), (), tmp_path / "trace.json"))
    with pytest.raises(LabError, match="a finite number, at least 0, is needed"):
        trace.what_if(**changed)


def test_a_graph_of_more_kernels_than_a_queue_has_room_for_is_one_entry_of_it(tmp_path):
    trace = SyntheticTrace()
    for step in range(3):
        began = 10_000 * step
        trace.range(f"ProfilerStep#{step}", began, 9900)
        graph = trace.call(began + 100, 4000, name="cudaGraphLaunch")
        for number in range(1500):
            trace.kernel(began + 600 + 6 * number, 5, graph)
    trace = Trace(trace.save(tmp_path / "trace.json"))
    assert trace.what_if().timeline.wall == pytest.approx(29_000, rel=0.05)


WAITS = [({}, "", "cudaDeviceSynchronize"), ({}, "aten::nonzero", "aten::nonzero"), ({"labkit": {"steps": 20}}, "", "")]


@pytest.mark.parametrize(("stamp", "around", "said"), WAITS)
def test_a_wait_after_each_step_is_a_cause_unless_labkit_measures_with_it(load, stamp, around, said):
    trace = SyntheticTrace(**stamp)
    for begin in range(0, 20 * 810, 810):  # 200 us of the host, ten kernels of 60 us, and the wait
        trace.range(f"ProfilerStep#{begin // 810}", begin, 809)
        trace.launches(10, begin + 200, begin + 206, 60, every=5, gpu_every=60)
        trace.call(begin + 260, 549, "cudaDeviceSynchronize")
        if around:
            trace.operator(around, begin + 255, 554)
    found = load(trace).summary().iloc[0]
    assert (f"since the host itself waits for it ({said}, 1 a step)" in found["verdict"]) == bool(said)
    assert found["first_remedy"] == ("waiting calls" if said else "launches")


OWN = "void mine::march<512u>(float*)"


@pytest.mark.parametrize("name", [OWN, "void at::native::vectorized_elementwise_kernel<4, Gelu>(int)"])
def test_a_few_long_calls_are_told_of_somebodys_own_kernel_only(load, name):
    trace, now, own = SyntheticTrace(), 0, name == OWN
    for number in range(100):  # PyTorch's kernels take as long as their tensors are large
        us = 900 if number % 50 == 31 else 9
        trace.launch(number, 105 + now, us, name=name)
        now += us + 1
    found = load(trace).summary().iloc[0]["verdict"]
    assert ("entirely with march, 100 in all, 2 of its calls for 67% of that: a faster march could" in found) == own
    assert ("with pointwise and other kernels: torch.compile" in found) != own
