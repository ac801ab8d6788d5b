"""The replayed step: the real step's operators, durations and launches that add up, and a trace stamped SIMULATED."""

import copy
import gzip
import json
from collections import Counter

import pytest
import torch
from killing import same
from operators import Operators

import labkit
from labkit.measure.roofline import step_flops
from labkit.simulate import ROOFLINES, replay, step_operators
from labkit.simulate.as_on_gpu import AsOnGPU
from labkit.simulate.cost_model import kernels
from labkit.simulate.meta_device import GPU_ONLY
from labkit.variants.registry import SPEEDUPS
from labtrace.replay.trace_file import write_trace


@pytest.fixture(scope="module")
def small(tiny):
    """The operators of a tiny step on one picture."""
    return step_operators(tiny(), size=32)


@pytest.fixture
def opened(tmp_path):
    """A function that plays operators, writes the trace and opens it: what was played, and the trace."""

    def open_trace(operators, host_us, **arguments):
        played = replay(operators, host_us, **arguments)
        return played, labkit.Trace(write_trace(played, tmp_path / "trace.json.gz"))

    return open_trace


@pytest.mark.parametrize("settings", [{}, {"norm": "batch"}])
def test_operators_and_flops_are_those_of_a_real_step(tiny, batch, settings):
    recorded = step_operators(tiny(**settings), batch_size=2, size=32)
    step = labkit.make_step(tiny(**settings))
    assert sum(operator.flops for operator in recorded) == step_flops(step, batch(2))
    pictures = batch(2)
    step(*pictures)
    step.update = lambda player: None  # Adam differs: on a GPU it goes over all weights at once
    called = []
    with Operators(lambda operator, arguments, result: called.append(operator)):
        step(*pictures)
    real = Counter(operator.name().partition(".")[0] for operator in called if operator.namespace == "aten")
    names = Counter(operator.name for operator in recorded if not operator.range.endswith("optimizer"))
    names["aten::lift_fresh"] = names.pop("upload")  # on a CPU there is nowhere to copy the pool's draws to
    assert names == real


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_quick_batch_norm_has_the_results_of_pytorch_s_own(dtype, weighted):
    def results():
        picture = torch.empty(2, 3, 8, 8, device="meta", dtype=dtype)
        weight, mean = torch.empty(3, device="meta") if weighted else None, torch.empty(3, device="meta")
        own = (picture, picture, weight, None, None, mean, mean, True, 1e-5, [True, weighted, weighted])
        results = torch.ops.aten.native_batch_norm_backward(*own)
        return [(one.shape, one.dtype, one.stride()) for one in results if one is not None]

    with AsOnGPU():
        quick = results()
    assert quick == results() and len(quick) == 1 + 2 * weighted


@pytest.mark.slow
def test_the_full_size_step_does_the_work_it_is_known_to_do():
    models = labkit.CycleGAN(), labkit.CycleGAN(lambda_identity=0.0)
    assert [round(sum(one.flops for one in step_operators(model)) / 1e9) for model in models] == [1879, 1287]


def test_recording_leaves_the_model_and_its_pools_as_found(tiny, batch):
    model = tiny(pool_size=2)
    step = labkit.make_step(model)
    step(*batch())
    before = copy.deepcopy(step.state_dict()), torch.get_rng_state()
    step_operators(model, size=64)
    assert same(step.state_dict(), before[0]) and torch.equal(torch.get_rng_state(), before[1])
    assert next(model.parameters()).device.type == "cpu"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPEEDUPS.keys() - GPU_ONLY - {"data_parallel", "winograd"}))
def test_every_other_speedup_can_be_recorded_in_16_bits(tiny, name):
    types = () if name in ("bf16", "fp16") else ("bf16",)
    assert step_operators(tiny(), name, *types, batch_size=2, size=32)


def test_a_students_speedup_is_recorded_and_one_for_gpus_only_refused(tiny, small):
    class Together:
        def judge(self, discriminator, real, fake):
            return discriminator(torch.cat([real, fake])).chunk(2)

    names = [[operator.name for operator in found] for found in (small, step_operators(tiny(), Together, size=32))]
    assert "aten::cat" not in names[0] and names[1].count("aten::cat") == 4  # two, and the backward of chunk
    with pytest.raises(labkit.LabkitError, match="compile: "):
        step_operators(tiny(), "compile", size=32)


def test_views_launch_nothing_and_some_operators_several_kernels(tiny):
    operators = step_operators(tiny(), batch_size=2, size=32)
    launched = Counter(kernel.operator for kernel in kernels(operators, ROOFLINES["T4"]))
    of = {}
    for place, operator in enumerate(operators):
        of.setdefault(operator.name, set()).add(launched[place])
    assert of["aten::view"] == of["aten::empty"] == {0} and of["aten::tanh"] == {1}
    assert of["aten::native_batch_norm"] == {3} and of["aten::reflection_pad2d_backward"] == {2}
    assert of["aten::convolution"] == {2}  # each has a bias
    assert of["aten::convolution_backward"] == {1, 3, 4}  # the discriminators' while generators learn, or the first
    assert of["aten::_foreach_addcdiv_"] == {1}


def test_every_kernel_is_in_its_range_and_step(small, opened):
    played, trace = opened(small, 15.0, steps=5)
    launched, ranges = trace.ranks[0].kernels, trace.ranks[0].ranges["name"]
    of_a_step = kernels(small, ROOFLINES["A100"])
    expected = [small[kernel.operator].range for kernel in of_a_step] * 5
    assert [ranges[i] if i >= 0 else "" for i in launched["range"]] == expected
    assert expected.count("") == 5 * 2, "the pools' draws are uploaded before the first player's turn"
    assert launched["step"].tolist() == [step for step in range(5) for _ in of_a_step]


@pytest.mark.parametrize("graph", [False, True])
def test_launches_and_kernels_are_linked_and_pytorch_finds_nothing_wrong(small, opened, tmp_path, graph):
    played, trace = opened(small, 20.0, graph=graph)
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    ends = {phase: [event for event in events if event["ph"] == phase] for phase in "sf"}
    calls = {event["id"]: event["ts"] for event in ends["s"]}
    assert len(ends["f"]) == len(played.launches) and len(calls) == len(ends["s"]) == (2 if graph else len(ends["f"]))
    assert all(event["ts"] >= calls[event["id"]] for event in ends["f"])
    operators = trace.operators()
    launching = operators["name"] == "cudaGraphLaunch" if graph else operators["kind"] == "operator"
    assert operators[launching]["gpu_self_us"].sum() == pytest.approx(trace.kernels()["total_us"].sum(), abs=1e-3)
    assert trace.audit().empty
    validator = pytest.importorskip("torch.profiler._trace_validator")
    assert validator.validate_trace(str(tmp_path / "trace.json.gz")) == (True, [])


def test_the_stamp_says_simulated_and_on_what_constants(small, opened, tmp_path):
    _, trace = opened(small, 7.0, roofline=ROOFLINES["T4"])
    stamp = trace.stamp
    assert stamp["SIMULATED"] is True and stamp["device"] == "SIMULATED T4" and stamp["steps"] == 2
    assert stamp["constants"]["host_us"] == 7.0 and stamp["constants"]["roofline"]["bytes_per_s"] == 320e9
    assert "host 7 µs a launch" in labkit.show.stamp_text(trace)
    with gzip.open(tmp_path / "trace.json.gz") as file:
        shown = [event["args"]["name"] for event in json.load(file)["traceEvents"] if event["ph"] == "M"]
    assert shown and all(name.startswith("SIMULATED") for name in shown)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json.gz"]


def test_a_host_that_loads_data_before_each_step_is_what_the_gpu_waits_for(small, opened):
    _, trace = opened(small, 2.0, data_us=50_000.0, steps=3)
    assert trace.summary()["bound_by"].item() == "data"
    data = trace.ranges().set_index("range").loc["data"]
    assert data["count"] == 3 and data["mean_us"] == pytest.approx(50_000)
    assert (trace.gaps(2)["range_at_begin"] == "data").all()


def test_operators_of_two_streams_wait_for_each_other(tiny):
    """How a program may say so, with events or without, is tested by the races of the lessons: the stubs are theirs."""
    operators = step_operators(tiny(), "streams", size=32)
    assert {operator.stream for operator in operators} == {0, 1, 2}
    assert {one.stream for one in operators if one.after and one.range == "generators forward"} == {0, 1, 2}
