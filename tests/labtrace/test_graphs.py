"""Names inside CUDA graphs: by the launched twin, by the capture and by annotations."""

import numpy as np
import pytest
from synthetic_trace import SyntheticTrace

from labtrace import TraceError
from labtrace.events.graphs import operators_around
from labtrace.events.twins import aligned

LAYERS = ("first", "second")
SHAPES = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}


def layers(launched, begin=0):
    """Two equal layers, each a product and a ReLU, in a range each: launched, or captured as on an AMD GPU."""
    trace = SyntheticTrace()
    for place, layer in enumerate(LAYERS):
        start = begin + 100 * place
        trace.event("user_annotation", f"labkit: {layer}", start, 90)
        trace.event("python_function", f"nn.Module: {layer.title()}_0", start, 90)
        trace.event("python_function", "train.py(7): step", start, 90)
        trace.event("python_function", "torch/nn/functional.py(9): linear", start, 80)
        for call in () if launched else (("hipStreamBeginCapture", 1), ("hipStreamEndCapture", 80)):
            trace.call(start + call[1], 2, call[0])
        trace.operator("aten::linear", start + 5, 40)
        trace.operator("aten::mm", start + 10, 30, **SHAPES)
        trace.operator("aten::relu", start + 50, 20)
        for at, name in ((15, "gemm"), (55, "relu")):
            if launched:
                trace.launch(start + at, start + at + 10, 10, name=name)
            else:
                trace.event("cuda_runtime", "hipLaunchKernel", start + at, 4, kernel=name, correlation=start + at)
    return trace


def replays(*graphs, **annotation):
    """Each graph, the names of its kernels, launched once; each kernel takes 10 us."""
    trace, now = SyntheticTrace(), 0
    for names in graphs:
        call = trace.call(now, name="cudaGraphLaunch")
        for kernel in names:
            trace.kernel(now := now + 20, 10, call, name=kernel)
            trace.events[-1]["args"] |= annotation
        now += 50
    return trace


def names(trace, *columns):
    return trace.kernels("operator").groupby(list(columns))["total_us"].sum().to_dict()


@pytest.mark.parametrize("launched", [True, False], ids=["launched", "captured"])
def test_kernels_have_the_operator_range_shapes_module_and_line_of_their_twins(load, launched):
    graphs = [("gemm", "relu", "gemm", "relu")] if launched else [("gemm", "relu")] * 4  # each layer twice
    named = load(replays(*graphs)).named_by(load(layers(launched)))
    times = 1 if launched else 2
    of_operators = named.operators().set_index("name")
    assert of_operators.loc["aten::mm", ["count", "self_us", "gpu_self_us"]].tolist() == [2 * times, 0, 20 * times]
    assert of_operators.loc["aten::linear", ["gpu_self_us", "gpu_total_us"]].tolist() == [0, 20 * times]
    assert of_operators.loc["cudaGraphLaunch", "gpu_self_us"] == 0
    assert names(named, "range") == dict.fromkeys(LAYERS, 20 * times), "equal graphs in their turn"
    places = {(f"nn.Module: {layer.title()}_0", "train.py(7): step"): 20 * times for layer in LAYERS}
    assert names(named, "module", "line") == places
    assert names(named, "operator", "inputs")["aten::mm", "8x16, 16x4"] == 20 * times
    assert named.concurrency().query("range == 'first'")["sum_us"].iloc[0] == 20 * times
    assert named.ranges().set_index("range").loc["first", ["count", "total_us"]].tolist() == [times, 0]
    assert named.achieved()[["name", "count", "flops"]].values.tolist()[0] == ["aten::mm", 2 * times, 2 * 8 * 16 * 4]


def test_what_has_no_twin_is_said_and_another_program_is_refused(load):
    twin = load(layers(launched=True))
    named = load(replays(("gemm", "own", "relu", "gemm", "relu"))).named_by(twin)
    assert names(named, "name", "operator")["own", "(none)"] == 10
    assert named.operators()["gpu_self_us"].sum() == 50
    for strange in (replays(("own",)), layers(launched=True)):
        with pytest.raises(TraceError, match="launches no kernel of a CUDA graph in it"):
            load(strange).named_by(twin)


def test_a_recording_by_others_is_named_by_the_same_training_launch_by_launch(public_trace):
    launched = public_trace("rtx5080_launch_by_launch")
    named = public_trace("rtx5080_cuda_graph").named_by(launched)
    assert (named.ranks[0].gpu_work["twin"] >= 0).sum() == 8 * 36 + 35, "all"
    assert {*names(named, "operator")} - {"(none)"} == {*names(launched, "operator"), "aten::copy_"}
    assert named.steps(5).operators().set_index("name").loc["aten::addmm", "count"] == 4, "and a part of the steps"


def test_an_alignment_withstands_kernels_that_come_go_and_change(public_trace):
    rank = public_trace("v100_nanoseconds").ranks[0]
    step = rank.kernels[rank.kernels["step"] == rank.kernels["step"].max()]
    operator = np.append(operators_around(rank.operators, rank.nested_operators), -1)[step["call"]]
    operator, random = np.append(rank.operators["name"], "(none)")[operator], np.random.default_rng(0)
    changed = set(random.choice(sorted(set(step["name"])), 5, replace=False))
    ours, true = [], []
    for name, launcher in zip(step["name"], operator, strict=True):
        if random.random() > 0.03:
            ours, true = [*ours, name + "_bf16" * (name in changed)], [*true, launcher]
        if random.random() < 0.03:
            ours, true = [*ours, str(random.choice(step["name"]))], [*true, "a stranger"]
    found = aligned(tuple(ours), tuple(step["name"]))
    right = operator[found[found >= 0]] == np.array(true)[found >= 0]
    assert np.mean(found >= 0) > 0.9 and right.mean() > 0.97  # difflib pairs 0.74 of them


@pytest.mark.parametrize("key", ["name", "module_fqn", "annotation"])
def test_annotations_of_pytorch_are_the_ranges_of_kernels(load, key):
    trace = replays(("gemm", "relu"), **{key: "layers.0", "graph node id": 7})
    trace.events[-1]["args"][key] = "layers.1"
    assert names(load(trace), "name", "range") == {("gemm", "layers.0"): 10, ("relu", "layers.1"): 10}
    named = load(trace).named_by(load(layers(launched=True)))
    assert names(named, "operator", "range") == {("aten::mm", "layers.0"): 10, ("aten::relu", "layers.1"): 10}
