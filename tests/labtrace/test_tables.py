"""Tables of traces whose every number is known, and every way a trace can be bad."""

import numpy as np
import pandas
import pytest
import synthetic_trace
from synthetic_trace import SyntheticTrace

from labtrace.errors import LabError, TraceError
from labtrace.trace import Trace


@pytest.fixture
def two_streams():
    return synthetic_trace.two_streams().operator("aten::conv2d", 40, 20)


def parts(table):
    return table.set_index("part")["us"].to_dict()


def test_temporal_by_step_holds_the_last_step_and_adds_up(load, two_streams):
    trace = load(two_streams)
    steps = trace.temporal(by="step")
    assert parts(steps[steps["step"] == 3])["idle"] == 10 + 150
    assert parts(steps[steps["step"] == 4]) == {
        "wall": 200, "busy": 140, "idle": 60, "compute": 100, "memory": 40, "communication": 0,
        "non_compute": 40, "compute_and_communication": 0
    }  # fmt: skip
    assert steps.groupby("part")["us"].sum().to_dict() == parts(trace.temporal())
    with pytest.raises(LabError, match="by='stpe'.*'step'"):
        trace.temporal(by="stpe")


def test_idle_time_of_the_device_and_of_each_stream_by_cause(load, two_streams):
    table = load(two_streams).idle()
    causes = {scope: rows.set_index("cause")["us"].to_dict() for scope, rows in table.groupby("scope")}
    assert causes == {
        "device": {"host_wait": 124, "kernel_wait": 36, "other": 60, "unknown": 0},
        "stream 7": {"host_wait": 174, "kernel_wait": 36, "other": 0, "unknown": 0},
        "stream 20": {"host_wait": 230, "kernel_wait": 20, "other": 0, "unknown": 0},
    }
    device = table[table["scope"] == "device"].set_index("cause")
    assert device.loc["host_wait", "share_of_idle"] == pytest.approx(124 / 220)
    assert device.loc["host_wait", "share_of_wall"] == pytest.approx(124 / 600)


def test_gaps_name_what_the_host_was_doing(load, two_streams):
    gaps = load(two_streams).gaps(largest=2)
    assert gaps["us"].tolist() == [150, 60] and gaps["cause"].tolist() == ["host_wait", "other"]
    assert gaps["range_at_begin"].tolist() == ["generators forward", "(none)"]
    assert gaps["operator_at_begin"].tolist() == ["(none)", "cudaLaunchKernel"]  # in it from 520 to 580
    assert gaps["operator_at_end"].tolist() == ["aten::mul", "(none)"]
    assert gaps["next_kernel"].tolist() == ["Memcpy HtoD (Pageable -> Device)", "gemm"]
    assert gaps["launch_delay_us"].tolist() == [26, 20]


def test_kernels_by_name_kind_and_memory_operation(load, two_streams):
    two_streams.copy(700, 710, 20, name="Memcpy")  # as PyTorch 2.15's second profiler writes it
    two_streams.events[-1]["args"] |= {"copy kind": "DtoH", "src kind": "device", "dst kind": "pageable"}
    two_streams.launch(701, 730, 10, name="Memset (Device)", category="gpu_memset")
    two_streams.launch(702, 740, 60, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    trace = load(two_streams)
    names = trace.kernels().set_index("name")
    assert names.loc["gemm", ["count", "total_us", "mean_us"]].tolist() == [2, 200, 100]
    assert names.loc["gemm", "share_of_busy"] == pytest.approx(200 / (380 + 20 + 10 + 60))
    kinds = trace.kernels(by="kind").set_index("kind")
    assert kinds["total_us"].to_dict() == {"compute": 390, "memory": 70, "communication": 60}
    memory = trace.kernels(by="memory").set_index(["operation", "pageable"])["total_us"].to_dict()
    assert memory == {("HtoD", True): 40, ("DtoH", True): 20, ("Memset", False): 10}


def test_launches_of_graphs_and_triton_are_found(load):
    trace = SyntheticTrace()
    graph = trace.call(0, 30, name="cudaGraphLaunch")
    for begin in (40, 50, 60):
        trace.kernel(begin, 9, graph)  # 9 < 30 / 3
    driver = trace.call(45, 4, name="cuLaunchKernelEx", category="cuda_driver")
    trace.operator("triton_poi_fused_add_0", 44, 94, stream=0)  # looks like 94 us on the GPU
    trace.kernel(75, 1, driver, name="triton_poi_fused_add_0")
    trace = load(trace)
    assert parts(trace.temporal())["compute"] == 28
    assert trace.idle().query("scope == 'device' and cause == 'kernel_wait'")["us"].tolist() == [8]


def test_without_launches_nothing_is_said_about_them(load):
    trace = load(SyntheticTrace().kernel(0, 10).kernel(50, 50))
    assert trace.idle().query("scope == 'device'").set_index("cause")["us"].to_dict()["unknown"] == 40
    with pytest.raises(TraceError, match="trace.json: .*launch.*ProfilerActivity.CPU"):
        trace.queue()
    verdict = trace.summary().iloc[0]
    assert verdict["bound_by"] == "unknown" and np.isnan(verdict["mean_queue"])
    assert "cannot be replayed" in verdict["why"]
    said = "The GPU waits 40% of the time: nothing on the host can bring more than 1.67x."
    assert verdict["verdict"].startswith(said)
    assert verdict["verdict"].endswith("busy, entirely with matrix products.")
    with pytest.raises(TraceError, match="trace.json: no steps"):
        trace.temporal(by="step")


def test_a_trace_with_next_to_nothing_in_it(load):
    trace = load(SyntheticTrace().kernel(5, 0))  # takes no time, so nothing can be a share of it
    assert trace.summary()["bound_by"].item() == "unknown"
    assert trace.temporal()["us"].eq(0).all() and trace.temporal()["share_of_wall"].isna().all()
    assert trace.kernels(by="memory").empty and trace.gaps().empty
    assert trace.operators().empty and trace.ranges().empty
    assert trace.idle()["us"].eq(0).all() and trace.concurrency()["us"].sum() == 0


def test_the_queue_is_a_step_function_with_a_mean(load):
    queue = load(SyntheticTrace().launch(0, 10, 90).launch(20, 100, 50).launch(30, 150, 60)).queue()
    assert queue["time_us"].tolist() == [0, 10, 20, 30, 100, 150]
    assert queue["waiting"].tolist() == [1, 0, 1, 2, 1, 0]
    assert queue["mean"].unique().tolist() == [pytest.approx((80 + 120) / 200)]


def test_concurrency_compares_the_union_with_the_sum(load, two_streams):
    table = load(two_streams).concurrency()
    everything = table[table["range"] == "all"]
    assert everything["us"].tolist() == [220, 330, 50]
    assert everything["union_us"].unique().tolist() == [380] and everything["sum_us"].unique().tolist() == [430]
    forward = table[table["range"] == "generators forward"]  # three kernels between 100 and 350
    assert forward["us"].tolist() == [10, 190, 50]
    assert forward[["union_us", "sum_us"]].iloc[0].tolist() == [240, 290]
    assert table[table["range"] == "data"]["us"].tolist() == [0, 40]


def test_kernels_of_the_autograd_thread_belong_to_the_range_round_it(load):
    trace = SyntheticTrace().range("labkit: generators backward", 0, 100)
    trace.kernel(20, 50, trace.call(10, tid=4243))
    assert load(trace).concurrency()["range"].tolist() == ["all"] * 2 + ["generators backward"] * 2


def test_long_delays_on_a_busy_gpu_are_not_the_host_s_fault(load):
    """97 of 100 kernels wait for more than 100 us, while the GPU is idle for 2% of the time."""
    verdict = load(SyntheticTrace().launches(100, 0, 40, 49, every=5, gpu_every=50)).summary().iloc[0]
    assert verdict["long_delays_of_kernels"] == pytest.approx(0.97, abs=0.02)
    assert verdict["idle_of_wall"] == pytest.approx(0.02, abs=0.002)
    assert verdict["bound_by"] == "compute"
    assert verdict["mean_queue"] > 40


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize("waiting_in", ["labkit: generators forward", "labkit: data", LOADER])
def test_short_delays_on_an_idle_gpu_are_its_fault_or_that_of_loading_data(load, waiting_in):
    """Every kernel begins as soon as it is launched and runs for 10 of 100 us."""
    trace, loading = SyntheticTrace().launches(100, 0, 5, 10, every=100), "forward" not in waiting_in
    for number in range(100):
        trace.range(waiting_in, number * 100 + 10, 85)
    verdict = load(trace).summary().iloc[0]
    assert verdict["long_delays_of_kernels"] == 0 and verdict["idle_of_wall"] == pytest.approx(0.9, abs=0.01)
    assert verdict["bound_by"] == ("data" if loading else "host")
    assert verdict["data_of_idle"] == pytest.approx(80 / 90 * loading)
    assert verdict["host_wait_of_idle"] == pytest.approx(89 / 90)  # 1 us to begin
    told = "waits 90% of the time, entirely for the launching of kernels: torch.compile" in verdict["verdict"]
    assert told != loading and verdict["mean_queue"] == pytest.approx(0.05, abs=0.005)


def test_copies_bind_by_memory_and_gaps_without_reason_are_unknown(load):
    copying = SyntheticTrace().copy(0, 10, 90).launch(5, 100, 10)
    assert load(copying).summary()["bound_by"].item() == "memory"
    waiting = SyntheticTrace().launches(3, 0, 100, 10, every=10, gpu_every=200)
    assert load(waiting).summary()["bound_by"].item() == "unknown"


def test_operators_have_their_own_time_and_ranges_their_time_per_step(load, two_streams):
    two_streams.operator("aten::item", 600, 100, tid=4243)  # another thread's is none of the others' children
    two_streams.operator("aten::copy_", 610, 30.25, tid=4243)
    two_streams.operator("aten::empty", 640, 0.5, tid=4243)  # ends after its parent, by rounding
    trace = load(two_streams)
    table = trace.operators().set_index("name")
    assert table.loc["aten::item", ["self_us", "total_us"]].tolist() == [69.75, 100]
    assert table.loc["aten::copy_", "self_us"] == 30
    assert table.loc["aten::conv2d", ["kind", "self_us"]].tolist() == ["operator", 16]
    assert table.loc["cudaLaunchKernel", ["kind", "count"]].tolist() == ["CUDA call", 4]
    assert trace.ranges().set_index("range").loc["data"].tolist() == [0, 1, 30, 30, 15]


def test_a_folder_holds_one_trace_of_each_rank(tmp_path, two_streams):
    other = SyntheticTrace(rank=3, labkit={"device": "made up"}).launch(0, 10, 90)
    other.save(tmp_path / "a.json", separators=(",", ":"))
    two_streams.save(tmp_path / "b.json.gz")
    trace = Trace(tmp_path)
    assert list(trace.ranks) == [0, 3]
    walls = trace.temporal().query("part == 'wall'").set_index("rank")["us"]
    assert walls.to_dict() == {0: 600, 3: 90}
    assert trace.stamp["device"] == "NVIDIA Imaginary" and Trace(tmp_path / "a.json").stamp == {"device": "made up"}


TABLES = "temporal idle gaps kernels queue concurrency summary communication operators ranges".split()
BY = [("kernels", {"by": "kind"}), ("kernels", {"by": "memory"}), ("temporal", {"by": "step"})]


@pytest.mark.parametrize(("table", "by"), [*((name, {}) for name in TABLES), *BY])
def test_all_steps_are_the_whole(load, two_streams, table, by):
    whole = load(two_streams)
    all_steps = whole.steps(3, 4)
    pandas.testing.assert_frame_equal(getattr(all_steps, table)(**by), getattr(whole, table)(**by))


def test_a_step_has_its_own_host_events_and_the_kernels_launched_in_it(load, two_streams):
    two_streams.launch(450, 800, 50, name="late")  # launched in step 3, run after all of step 4
    two_streams.launch(770, 860, 5, name="afterwards")  # launched in no step
    two_streams.kernel(870, 5, name="nobody's")
    trace = load(two_streams)
    third, fourth = trace.steps(3), trace.steps(4)
    assert set(third.kernels()["name"]) == {"void gemm<4, float>(int)", "gemm", "relu", "late"}
    assert set(fourth.kernels()["name"]) == {"gemm", "Memcpy HtoD (Pageable -> Device)"}
    assert parts(third.temporal())["wall"] == 750 and parts(fourth.temporal())["wall"] == 200
    assert set(third.operators()["name"]) == {"aten::conv2d", "cudaLaunchKernel"}
    assert fourth.ranges()["range"].tolist() == ["data"] and fourth.ranges()["us_per_step"].tolist() == [30]
    assert third.gaps(largest=1)["begin_us"].tolist() == [350], "times are those of the whole recording"
    assert trace.only_steps is None and fourth.only_steps == (4, 4) and trace.steps(3, 4).steps(3).only_steps == (3, 3)
    assert len(trace.kernels()) == 7, "the whole is left as it was"


def test_steps_that_are_not_there(load, two_streams):
    two_streams.range("ProfilerStep#5", 800, 10)
    trace = load(two_streams)
    with pytest.raises(TraceError, match="trace.json: .*no step 7.* 3, 4, 5"):
        trace.steps(4, 7)
    with pytest.raises(TraceError, match="no kernel.* 5 to 5"):
        trace.steps(5)
    with pytest.raises(LabError, match="first=4 .*last=3"):
        trace.steps(4, 3)
    with pytest.raises(TraceError, match="no ProfilerStep"):
        load(SyntheticTrace().launch(0, 10, 90)).steps(0)
