"""Traces hold ranges and a stamp, open in HTA, and leave the step as it was."""

import copy
import gzip
import json
from unittest.mock import MagicMock

import pytest
import torch
from killing import same
from tiny import TooMuch

import labkit
from labkit.errors import LabkitError
from labkit.measure import count, record, step_flops


@pytest.fixture
def step(tiny, batch):
    """A step in the middle of training."""
    step = labkit.make_step(tiny(pool_size=2))
    step(*batch())
    return step


def test_a_trace_holds_steps_ranges_and_its_stamp(step, batch, tmp_path):
    path = labkit.record(step, batch(), tmp_path / "trace.json.gz", steps=2)
    with gzip.open(path) as file:
        trace = json.load(file)
    assert trace["labkit"]["torch"] == torch.__version__ and trace["labkit"]["steps"] == 2
    names = [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    parts = [f"labkit: {who} {what}" for who in step.players for what in ("forward", "backward", "optimizer")]
    assert {name: names.count(name) for name in parts} == dict.fromkeys(parts, 2)
    assert sum(name.startswith("ProfilerStep#") for name in names) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json.gz"]


def test_shapes_are_recorded_on_request(tiny, batch, tmp_path):
    step = labkit.make_step(tiny())
    for shapes in (False, True):
        path = labkit.record(step, batch(size=24), tmp_path / "trace.json.gz", steps=1, shapes=shapes)
        with gzip.open(path, "rt") as file:
            assert ("[[1, 3, 30, 30], " in file.read()) == shapes, "padded by 3 before the first convolution"


@pytest.mark.parametrize("speedup", [None, pytest.param("fp16", marks=pytest.mark.slow)])
def test_the_step_is_the_same_before_and_after_bit_for_bit(tiny, batch, tmp_path, speedup):
    step = labkit.make_step(tiny(pool_size=2), *[speedup] * bool(speedup))
    for fresh in (True, False):
        before = copy.deepcopy(step.state_dict()), torch.get_rng_state()
        labkit.record(step, batch(), tmp_path / "trace.json", steps=1)
        after = step.state_dict(), torch.get_rng_state()
        assert same(after[0], before[0]) and torch.equal(after[1], before[1]), f"fresh: {fresh}"
        step(*batch(seed=1))


def test_batches_may_come_from_a_loader_and_waiting_for_them_is_recorded(step, fruit, tmp_path):
    trace = labkit.Trace(labkit.record(step, labkit.batches(fruit, 1, 0, 9), tmp_path / "trace.json", steps=2))
    (rank,) = trace.ranks.values()
    events = rank.ranges.sort_values("begin")
    phases = [f"{player} {phase}" for player in step.players for phase in ("forward", "backward", "optimizer")]
    assert events["name"].tolist() == 2 * ["data", *phases]
    assert (events["duration"] > 0).all()


def test_batches_that_run_out_are_named(step, batch, tmp_path):
    with pytest.raises(LabkitError, match="batch: 5 are needed, of which three warm up, and there were 4"):
        labkit.record(step, iter([batch()] * 4), tmp_path / "trace.json", steps=2)


REFUSED = [
    ("trace.json", 0, "steps=0"),
    ("trace.txt", 1, "trace.txt: a trace's name ends in"),
    ("file/trace.json", 1, "nothing can be written there"),
]


@pytest.mark.parametrize(("name", "steps", "message"), REFUSED)
def test_what_cannot_be_recorded_is_refused_before_anything_runs(step, batch, tmp_path, name, steps, message):
    (tmp_path / "file").write_text("in the way")
    before = copy.deepcopy(step.state_dict())
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.record(step, batch(), tmp_path / name, steps=steps)
    assert same(step.state_dict(), before)


def test_running_out_of_memory_leaves_the_step_as_it_was(tiny, batch, tmp_path):
    step = labkit.make_step(tiny(pool_size=2), TooMuch)
    step(*batch())
    before = copy.deepcopy(step.state_dict())
    with pytest.raises(torch.OutOfMemoryError):
        labkit.record(step, batch(3), tmp_path / "trace.json", steps=1)
    assert same(step.state_dict(), before) and not [*tmp_path.iterdir()]


def test_a_step_s_operations_are_those_of_its_passes(tiny, batch):
    model = tiny(lambda_identity=0.0)
    steps = [labkit.make_step(tiny(lambda_identity=weight)) for weight in (0.5, 0.0)]
    with_identity, without = (step_flops(step, batch()) for step in steps)
    forward = count(model.G_A, 32).flops
    # Two passes more; backward is twice forward, but for the first layer, which need not tell its input's gradient.
    assert 2 * 2 * forward < with_identity - without < 2 * 3 * forward


def test_annotations_are_exported_by_pytorch_and_read_as_ranges(step, batch, tmp_path, monkeypatch):
    """A kernel in PyTorch's own export: no driver here can annotate one."""
    export = pytest.importorskip("torch.profiler._chrome_trace_export")  # of PyTorch 2.12 and later
    exported, node = export.export_chrome_trace, 3 << 32 | 5
    monkeypatch.setattr(record.ANNOTATIONS, "get_kernel_annotations", lambda: {node: [{"name": "layers.0"}]})

    def with_kernel(results, *arguments):
        found = {"device_id": 0, "resource_id": 7, "type": "kernel", "name": "gemm", "duration": 5000, "flow_id": 0}
        found |= {"linked_correlation_id": 0, "linked_activity": None, "timestamp": results.trace_start_ns()}
        found["metadata_json"] = f'"stream": 7, "correlation": 3, "graph node id": {node}'
        kernel = MagicMock(**{f"{name}.return_value": value for name, value in found.items()})
        more = MagicMock(wraps=results)
        more.trace_activities = lambda: [*results.trace_activities(), kernel]
        return exported(more, *arguments)

    monkeypatch.setattr(export, "export_chrome_trace", with_kernel)
    trace = labkit.Trace(labkit.record(step, batch(), tmp_path / "trace.json", steps=1))
    assert trace.stamp["steps"] == 1 and trace.kernels("operator")["range"].tolist() == ["layers.0"]
