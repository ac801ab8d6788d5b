"""Names inside CUDA graphs: by the launched twin, by the capture and by annotations."""

import pytest
from synthetic_trace import SyntheticTrace

from labtrace import TraceError
from labtrace.events.twins import aligned

LAYERS = ("first", "second")
SHAPES = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]}


def layers(launched=True):
    """Two equal layers, each a product and a ReLU, in a range each: launched, or captured as on an AMD GPU."""
    trace = SyntheticTrace()
    for start, layer in zip((0, 100), LAYERS, strict=True):
        trace.event("user_annotation", f"labkit: {layer}", start, 90)
        for function in (f"nn.Module: {layer}", "train.py(7): step", "torch/nn/functional.py(9): linear"):
            trace.event("python_function", function, start, 90)
        trace.operator("aten::linear", start + 5, 40)
        trace.operator("aten::mm", start + 10, 30, **SHAPES)
        trace.operator("aten::relu", start + 50, 20)
        if launched:
            trace.launch(start + 15, start + 25, 10, name="gemm")
            trace.launch(start + 55, start + 65, 10, name="relu")
        else:
            for at, call in ((1, "hipStreamBeginCapture"), (80, "hipStreamEndCapture")):
                trace.call(start + at, 2, call)
            for at, name in ((15, "gemm"), (55, "relu")):
                trace.event("cuda_runtime", "hipLaunchKernel", start + at, 4, kernel=name)
    return trace


def replays(*graphs):
    """Each graph, the names of its kernels, launched once; each kernel takes 10 us."""
    trace = SyntheticTrace()
    for number, names in enumerate(graphs):
        call = trace.call(500 * number, name="cudaGraphLaunch")
        for place, kernel in enumerate(names):
            trace.kernel(500 * number + 20 * (place + 1), 10, call, name=kernel)
    return trace


def us_by(trace, *columns):
    return trace.kernels("operator").groupby(list(columns))["total_us"].sum().to_dict()


@pytest.mark.parametrize("launched", [True, False], ids=["launched", "captured"])
def test_kernels_have_the_operator_range_shapes_module_and_line_of_their_twins(load, launched):
    graphs = [("gemm", "relu", "gemm", "relu")] if launched else [("gemm", "relu")] * 4  # each layer twice
    named, times = load(replays(*graphs)).named_by(load(layers(launched))), 1 if launched else 2
    of_operators = named.operators().set_index("name")
    assert of_operators.loc["aten::mm", ["count", "self_us", "gpu_self_us"]].tolist() == [2 * times, 0, 20 * times]
    assert of_operators.loc["aten::linear", ["gpu_self_us", "gpu_total_us"]].tolist() == [0, 20 * times]
    assert of_operators.loc["cudaGraphLaunch", "gpu_self_us"] == 0
    assert us_by(named, "range") == dict.fromkeys(LAYERS, 20 * times), "equal graphs in their turn"
    places = {(f"nn.Module: {layer}", "train.py(7): step"): 20 * times for layer in LAYERS}
    assert us_by(named, "module", "line") == places
    assert us_by(named, "operator", "inputs")["aten::mm", "8x16, 16x4"] == 20 * times
    assert named.concurrency().query("range == 'first'")["sum_us"].iloc[0] == 20 * times
    assert named.ranges().set_index("range").loc["first", ["count", "total_us"]].tolist() == [times, 0]
    assert named.achieved()[["name", "count", "flops"]].values.tolist() == [["aten::mm", 2 * times, 2 * 8 * 16 * 4]]


def test_what_has_no_twin_is_said_and_another_program_is_refused(load):
    named = load(replays(("gemm", "own", "relu", "gemm", "relu"))).named_by(load(layers()))
    assert us_by(named, "name", "operator")["own", "(none)"] == 10
    assert named.operators()["gpu_self_us"].sum() == 50
    for strange in (replays(("own",)), layers()):
        with pytest.raises(TraceError, match="launches no kernel of a CUDA graph in it"):
            load(strange).named_by(load(layers()))


def test_a_recording_by_others_is_named_by_the_same_training_launch_by_launch(public_trace):
    launched = public_trace("rtx5080_launch_by_launch")
    named = public_trace("rtx5080_cuda_graph").named_by(launched)
    assert (named.ranks[0].gpu_work["twin"] >= 0).sum() == 8 * 36 + 35, "all"
    assert {*us_by(named, "operator")} - {"(none)"} == {*us_by(launched, "operator"), "aten::copy_"}
    assert named.steps(5).operators().set_index("name").loc["aten::addmm", "count"] == 4, "and a part of the steps"


def test_kernels_that_are_missing_new_or_of_another_name_do_not_shift_equal_blocks():
    step = ("copy", *("conv", "norm", "relu") * 30, "adam")
    places = [place for place in range(len(step)) if place not in (10, 60)]
    ours = [step[place].replace("relu", "relu16") for place in places]
    ours[40:40], places[40:40] = ["own"], [-1]
    right = [-1 if name == "relu16" else place for name, place in zip(ours, places, strict=True)]
    assert aligned(tuple(ours), step).tolist() == right


@pytest.mark.parametrize("key", ["name", "module_fqn", "annotation"])
def test_annotations_of_pytorch_are_the_ranges_of_kernels(load, key):
    trace = replays(("gemm", "relu"))
    for place, event in enumerate(trace.events[1:]):
        event["args"][key] = f"layers.{place}"
    assert us_by(load(trace), "name", "range") == {("gemm", "layers.0"): 10, ("relu", "layers.1"): 10}
    named = load(trace).named_by(load(layers()))
    assert us_by(named, "operator", "range") == {("aten::mm", "layers.0"): 10, ("aten::relu", "layers.1"): 10}
