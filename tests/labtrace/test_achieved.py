"""Achieved rates: the FLOPs are those that PyTorch counts while it runs, and the rates follow from the times."""

import json

import pytest
import torch
from synthetic_trace import SyntheticTrace
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import labtrace
from labtrace.tables import achieved
from labtrace.tables.peaks import peaks_of

US = 10.0  # that each kernel takes


class Network(nn.Module):
    """Convolutions with stride, dilation and without, a normalisation, and matrix products with and without a bias."""

    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 8, 5, stride=2, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3, dilation=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1))
        self.tail = nn.Linear(8, 5)

    def forward(self, picture):
        codes = self.body(self.head(picture)).flatten(2)
        return self.tail(torch.bmm(codes, codes.transpose(1, 2)))


def on_a_gpu(trace, concrete=True):
    """A trace of a CPU as one of an AMD GPU, whose convolution has the same arguments as the CPU's."""
    launching = {*achieved.FORWARD, *achieved.PRODUCTS, *achieved.NORMS, achieved.BACKWARD}
    events = [dict(event) for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    for event in events:
        event["name"] = event["name"].replace("aten::mkldnn", "aten::miopen")
        if not concrete:
            event["args"] = {name: value for name, value in event["args"].items() if name != "Concrete Inputs"}
    return {**trace, "traceEvents": events + [kernel(event) for event in events if event["name"] in launching]}


def kernel(operator):
    args = {"stream": 7, "correlation": 0, "External id": operator["args"]["External id"]}
    where = {"ts": operator["ts"] + operator["dur"], "dur": US, "pid": 0, "tid": 7}
    return {"ph": "X", "cat": "kernel", "name": "kernel", **where, "args": args}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A training step of the network, recorded here with its shapes, and its FLOPs as PyTorch counts them."""
    network, picture = Network(), torch.rand(2, 3, 32, 32)
    network(picture).sum().backward()
    with FlopCounterMode(display=False) as counter:
        network(picture).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        network(picture).sum().backward()
    path = tmp_path_factory.mktemp("achieved") / "cpu.json"
    recording.export_chrome_trace(str(path))
    return json.loads(path.read_text()), counter.get_total_flops()


def rates(trace, tmp_path):
    """The table of a trace, in the form of a dictionary or a `SyntheticTrace`; a row a name and inputs."""
    path = tmp_path / "trace.json"
    if isinstance(trace, SyntheticTrace):
        trace.save(path)
    else:
        path.write_text(json.dumps(trace))
    table = labtrace.Trace(path).achieved()
    assert table["us"].is_monotonic_decreasing
    return table.set_index(["name", "inputs"])


def test_the_flops_of_a_step_are_those_that_pytorch_counts(recorded, tmp_path):
    trace, flops = recorded
    table = rates(on_a_gpu(trace), tmp_path)
    assert (table["flops"] * table["count"]).sum() == flops
    assert table["bytes"].notna().all() and set(table["dtype"]) == {"float32"}
    product = table.loc["aten::addmm", "5, 16x8, 8x5"]
    assert product["flops"] == 2 * 16 * 8 * 5 and product["bytes"] == 4 * (5 + 16 * 8 + 8 * 5 + 16 * 5)
    assert product["tflop_per_s"] == pytest.approx(2 * 16 * 8 * 5 / US / 1e6)
    assert product["gb_per_s"] == pytest.approx(product["bytes"] / US / 1e3)
    assert table.loc["aten::native_batch_norm"]["tflop_per_s"].isna().all()


def test_without_strides_the_output_is_that_of_the_backward_pass(recorded, tmp_path):
    trace, _ = recorded
    full, table = rates(on_a_gpu(trace), tmp_path), rates(on_a_gpu(trace, concrete=False), tmp_path)
    forward = table.loc["aten::miopen_convolution"]
    assert len(forward) > 1 and (forward["flops"] == full.loc["aten::miopen_convolution"]["flops"]).all()
    assert table.loc["aten::convolution_backward"]["flops"].isna().all()  # of which inputs, it does not say


def shaped(trace, name, dims, begin=0, kind="float", us=US, values=(), kernel="gemm"):
    """An operator with tensors of these shapes; it launches one kernel, if `us` is not 0."""
    told = {"Input Dims": [list(shape) for shape in dims], "Input type": [kind if shape else "" for shape in dims]}
    trace.operator(name, begin, 20, **told, **({"Concrete Inputs": list(values)} if values else {}))
    if us:
        trace.launch(begin + 5, begin + 100, us, name=kernel)


def test_old_backward_passes_have_the_shapes_of_their_caller(tmp_path):
    trace = SyntheticTrace()
    picture, weight = (2, 4, 8, 8), (6, 4, 3, 3)
    for begin, output in ((0, (2, 6, 8, 8)), (200, (2, 6, 4, 4))):  # the same picture and weight, strides 1 and 2
        shapes = {"Input Dims": [picture, output, weight], "Input type": ["float"] * 3}
        trace.operator(achieved.OLD_BACKWARD, begin, 60, **shapes)
        shaped(trace, achieved.OF_INPUT, [(), output, weight], begin)
        shaped(trace, achieved.OF_WEIGHT, [(), output, picture], begin + 30)
    shaped(trace, "aten::cudnn_convolution", [picture, weight], 400)
    table = rates(trace, tmp_path)
    for name, written in ((achieved.OF_INPUT, 2 * 4 * 64), (achieved.OF_WEIGHT, 6 * 4 * 9)):
        found = table.loc[name].sort_values("flops")
        assert found["flops"].tolist() == [2 * 2 * 6 * size * 4 * 9 for size in (16, 64)]
        other = 6 * 4 * 9 if name == achieved.OF_INPUT else 2 * 4 * 64
        assert found["bytes"].tolist() == [4 * (2 * 6 * size + other + written) for size in (16, 64)]
    assert table.loc["aten::cudnn_convolution"]["flops"].isna().all()  # of which of the two strides, it does not say


def test_a_transposed_convolution(tmp_path):
    trace = SyntheticTrace()
    values = ["", "", "[1, 1]", "[1, 1]", "[2, 2]", "[1, 1]", "1", "True", "False", "True"]
    dims = [(2, 8, 16, 16), (8, 4, 3, 3), *[()] * 8]
    shaped(trace, "aten::cudnn_convolution_transpose", dims, values=values)
    (row,) = rates(trace, tmp_path).itertuples()
    assert row.flops == 2 * 2 * 16 * 16 * 8 * 4 * 9
    assert row.bytes == 4 * (2 * 8 * 16 * 16 + 8 * 4 * 9 + 2 * 4 * 32 * 32)


def test_the_peaks_of_a_gpu_are_found_by_its_name_and_not_those_of_a_like_one():
    assert peaks_of("NVIDIA H100 80GB HBM3")[0]["bfloat16"] == 989e12 and peaks_of("Tesla V100-PCIE-16GB")[1] == 900e9
    others = "RTX 4070 Ti SUPER", "RTX 3080 Laptop GPU", "A100-SXM4-40GB MIG 1g.5gb", "H200 NVL", "unknown GPU"
    assert not any(map(peaks_of, others)) and peaks_of("NVIDIA GeForce RTX 4070 Ti")


def test_a_rate_is_a_share_of_the_peak_that_its_kernels_have(tmp_path):
    trace = SyntheticTrace(deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}])
    for begin, kernel in ((0, "ampere_sgemm_128x64_tn"), (400, "cutlass_80_tensorop_s1688gemm_128x128")):
        shaped(trace, "aten::mm", [(64, 64), (64, 8 + begin)], begin, kernel=kernel)
    table = rates(trace, tmp_path)
    peak = 1e-12 * table["flops"] / (US / 1e6) / table["share_of_peak"]
    assert peak.sort_index().tolist() == pytest.approx([156, 19.5])
    assert (table["gb_per_s"] / table["share_of_memory_peak"]).tolist() == pytest.approx([1555] * 2)
