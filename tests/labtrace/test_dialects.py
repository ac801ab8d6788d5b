"""Traces as every version of PyTorch and every maker of GPUs writes them, held to times that are known."""

import json

import pandas
import pytest
from synthetic_trace import AUTOGRAD, GPU, HOST, SyntheticTrace, on_the_host, two_streams

from labtrace.errors import TraceError
from labtrace.events.dialects import fine_kinds
from labtrace.trace import Trace

OLD = {
    "kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset", "cuda_runtime": "Runtime", "cpu_op": "Operator",
    "user_annotation": "Operator",
}  # fmt: skip


def today(trace):
    return trace.events


def old_names(trace):
    """PyTorch 1.8 to 1.10: other categories, threads as texts, streams as "stream 7"."""
    events = [event for event in trace.events if event["cat"] != "gpu_user_annotation"]
    for event in events:
        on_gpu = event["pid"] == GPU
        event |= {"cat": OLD[event["cat"]], "tid": f"stream {event['tid']}" if on_gpu else str(event["tid"])}
        event["args"].pop("stream", None)
    return events


def of_amd(trace):
    for event in trace.events:
        event["cat"] = event["cat"].replace("cuda_", "hip_")
        event["name"] = event["name"].replace("cuda", "hip")
        if event["name"].startswith("Memcpy"):
            event |= {"name": "CopyHostToDevice", "cat": "kernel"}
    return trace.events


def of_intel(trace):
    for event in trace.events:
        event["cat"] = event["cat"].replace("cuda_runtime", "xpu_runtime")
        event["name"] = event["name"].replace("cudaLaunchKernel", "urEnqueueKernelLaunchWithArgsExp")
        if event["pid"] == GPU:
            event["args"]["sycl queue"] = event["args"].pop("stream")
    return trace.events


def since_1970(trace):
    """As PyTorch 2.2 and 2.3 write them: with nanoseconds, in numbers that no float can hold."""
    for event in trace.events:
        event["ts"], event["dur"] = f"{1623142623460111 + event['ts']}.123", f"{event['dur']}.000"
    return trace.events


DIALECTS = (today, old_names, of_amd, of_intel, since_1970)


def save(events, path):
    """Writes texts that are numbers as numbers, since no float could hold them."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": events})
    for event in events:
        for time in (event.get("ts"), event.get("dur")):
            text = text.replace(f'"{time}"', time) if isinstance(time, str) else text
    path.write_text(text)
    return Trace(path)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_same_tables(tmp_path, dialect):
    events = dialect(two_streams())
    trace = save(events, tmp_path / "trace.json")
    table = trace.temporal().set_index("part")["us"]
    assert table[["wall", "busy", "idle"]].tolist() == [600, 380, 220]
    assert trace.kernels()["total_us"].tolist() == [200, 100, 90, 40]
    kinds = trace.kernels(by="kind").set_index("kind")["total_us"].to_dict()
    assert kinds == {"compute": 390, "memory": 40, "communication": 0}
    idle = trace.idle().query("scope == 'device'").set_index("cause")["us"].to_dict()
    assert idle == {"host_wait": 124, "kernel_wait": 36, "other": 60, "unknown": 0}
    assert trace.ranges()["range"].tolist() == ["generators forward", "data"]
    assert trace.operators().set_index("name").loc["aten::mul", ["self_us", "gpu_total_us"]].tolist() == [50, 100]
    assert trace.temporal(by="step")["step"].unique().tolist() == [3, 4]


LAUNCHES = [("cudaLaunchKernel", "cuda_runtime"), ("urEnqueueKernelLaunch", "xpu_driver")]
LAUNCHES += [("zeCommandListAppendLaunchKernel", "xpu_driver")]


@pytest.mark.parametrize(("name", "category"), LAUNCHES)
@pytest.mark.parametrize("counters", [0, 1])
def test_launches_without_a_kernel_are_of_a_gpu_that_was_not_recorded(tmp_path, name, category, counters):
    trace = SyntheticTrace()
    trace.call(5, 10, name, category=category)
    for _ in range(counters):
        trace.event("cuda_profiler_range", "__autorange__", 0, 500, GPU, 0, smsp__inst=7)
    opened = Trace(trace.save(tmp_path / "trace.json"))
    for table in (opened.temporal, opened.communication):
        with pytest.raises(TraceError, match="trace.json: the host launched kernels.*not record the GPU. CUPTI.*PTI"):
            table()


DEVICES = {None: "no category", "": "no category", "mtia_ccp_events": "mtia_ccp_events", "python_function": None}


@pytest.mark.parametrize(("category", "told"), DEVICES.items())
def test_events_of_a_strange_device_are_not_those_of_a_cpu(tmp_path, category, told):
    """Ascend's events on its device have no category."""
    trace = on_the_host(("aten::add", 0, 20)).event(category, "Add", 40, 30)
    opened = Trace(trace.save(tmp_path / "trace.json"))
    message = rf"a device that labtrace does not read \({told}\)" if told else "recorded on a CPU"
    with pytest.raises(TraceError, match=message):
        opened.temporal()
    assert opened.operators()["name"].tolist() == ["aten::add"]


COMMUNICATION = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "rcclGenericKernel<1, false>",
    "void vllm::cross_device_reduce_1stage<float, 8>(int)", "one_shot_all_reduce_kernel", "hcclAllReduce",
    "two_shot_all_reduce_kernel_inplace", "void mscclpp::allreduce<int>()", "nvshmemi_transfer", "XCCL_allreduce",
    "multimem_all_reduce_kernel", "void deep_ep::internode::dispatch<false, 8>(int)",
    "dpsk::ep::internode::notify_combine", "userbuffers_fp16_sum_inplace_gpu_rr_ag", "all_to_all_vdev",
    "allreduce_fusion_kernel_oneshot_lamport", "quickreduce::allreduce_twoshot", "reduce_scatter_cast_kernel",
]  # fmt: skip


COMPUTING = ["void reduce_kernel<512, 1>(int)", "vectorized_elementwise_kernel", "_scatter_gather_elementwise_kernel"]


@pytest.mark.parametrize("name", [*COMMUNICATION, *COMPUTING])
def test_communication_has_many_names_and_computing_is_none(load, name):
    trace = SyntheticTrace().launch(0, 10.1, 30.2).launch(2, 30.1, 30.9, name=name, stream=20)
    opened, sends = load(trace), name in COMMUNICATION
    assert opened.temporal().set_index("part")["us"]["communication"] == pytest.approx(30.9 * sends)
    assert opened.communication()[["hidden_us", "exposed_us"]].iloc[0].tolist() == [10.2 * sends, 20.7 * sends]


KINDS = {
    "attention": ["attn_fwd", "flash_fwd_kernel<softmax>", "triton_tem_fused_flex_attention_0", "sage_fwd"],
    "softmax": ["cunn_SoftMaxForward<8, c10::BFloat16>", "triton_per_fused__softmax_1", "softmax_warp_backward"],
    "convolutions": ["sm80_xmma_fprop_implicit_gemm", "cudnn::winograd_nonfused", "miopenSp3AsmConv_v21"],
    "matrix products": [
        "_matmul_ogs_NNT_bf16xbf16xmxfp4", "bmm_MxE4m3_MxE2m1MxE4m3_Fp32", "fused_moe_kernel", "triton_mm",
        "triton_tem_fused_addmm_relu_3", "_w8a8_block_fp8_matmul", "Cijk_Ailk_Bljk_BBS_BH", "fbgemm_gpu::f8_gemm",
    ],
    "normalisation": ["vectorized_layer_norm_kernel", "triton_red_fused_native_layer_norm_2", "normalize_rows"],
    "pointwise and other": [
        "triton_poi_fused_convert_element_type_0", "triton_poi_fused__scaled_dot_product_flash_attention_1",
        "triton_poi_fused_convolution_relu_4", "triton_for_fused_addmm_0",
        "split_embedding_kernel<fbgemm_gpu::FixedDivisor>",
        "distribution_kernel<normal_and_transform>", "reduce_kernel<at::native::NormTwoOps<float>>",
        "foreach_kernel<LpNormFunctor<float>>",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "names"), KINDS.items())
def test_kernels_have_kinds_by_their_names(kind, names):
    kernels = pandas.DataFrame({"name": names, "kind": "compute"})
    assert dict(zip(names, fine_kinds(kernels), strict=True)) == dict.fromkeys(names, kind)


OWN = ["## forward ##", "Optimizer.step#SGD.step", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"]


SHOWN = [(OWN, "user_annotation", OWN), (OWN, "cpu_op", OWN)]
SHOWN += [(["labkit: data", *OWN], "user_annotation", ["data", "## forward ##"])]


@pytest.mark.parametrize(("names", "category", "shown"), SHOWN)
def test_the_users_ranges_and_pytorchs_or_labkits_are_shown(load, names, category, shown):
    trace = SyntheticTrace().range("ProfilerStep#1", 0, 100)
    for number, name in enumerate(names):
        trace.event(category, name, 10 * number, 9)
    table = load(trace.launch(5, 10, 20)).ranges()
    assert table["range"].tolist() == shown and table["total_us"].tolist() == [9] * len(shown)


def test_operators_have_the_gpu_time_of_what_they_launched(tmp_path):
    trace = SyntheticTrace().operator("aten::linear", 0, 100).operator("aten::addmm", 10, 50).launch(20, 200, 30)
    graph = trace.call(70, 9, name="cudaGraphLaunch")
    trace.kernel(300, 5, graph)
    trace.kernel(310, 6, graph)
    trace.launch(40, 320, 7, call_duration=1)
    trace.operator("aten::mul", 30, 20, tid=AUTOGRAD)  # at the same time, in another thread
    trace.operator("aten::add", 400, 9, **{"External id": 77})
    trace.event("kernel", "late", 420, 11, GPU, 7, stream=7, correlation=900, **{"External id": 77})  # no call
    trace.event("kernel", "early", 390, 1, GPU, 7, stream=7, correlation=901, **{"External id": 77})  # not of that one
    trace.event("Trace", "PyTorch Profiler (0)", -1, 999, HOST, HOST)
    table = Trace(trace.save(tmp_path / "trace.json")).operators().set_index("name")[["gpu_self_us", "gpu_total_us"]]
    assert table.loc["aten::linear"].tolist() == [11, 48] and table.loc["aten::addmm"].tolist() == [37, 37]
    assert table.loc["aten::mul"].tolist() == [0, 0] and table.loc["aten::add"].tolist() == [11, 11]
    assert table.loc["cudaGraphLaunch"].tolist() == [11, 11] and table.loc["cudaLaunchKernel"].tolist() == [37, 37]
