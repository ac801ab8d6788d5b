"""Which trace a notebook is shown: a shipped recording before a SIMULATED one, and never one for the other."""

import pytest
import torch
from synthetic_trace import SyntheticTrace

import labcourse
import labkit
from labcourse import shipped


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder to work in, with a place for shipped traces that is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize("device", ["h200", "t4"])
def test_a_shipped_recording_is_shown_with_its_own_stamp(elsewhere, device):
    trace = SyntheticTrace(labkit={"device": device})
    trace.launch(0, 10, 90)
    folder = elsewhere / "data" / "traces" / device
    folder.mkdir(parents=True)
    trace.save(folder / "resnet_9blocks_b16_bf16+streams.json.gz")
    assert labcourse.gpu_trace("streams", "bf16", batch_size=16).stamp == {"device": device}
    assert not (elsewhere / "out").exists()


def test_without_a_recording_the_trace_is_simulated_and_says_so(elsewhere):
    eager, graph = (labcourse.gpu_trace(*names, host_us=120.0) for names in ((), ("graph",)))
    for trace in (eager, graph):
        assert trace.stamp["SIMULATED"] is True and trace.stamp["device"].startswith("SIMULATED")
    said = labkit.show.stamp_text(eager)
    assert "host 120 µs a launch" in said and "times 0.8 to 1.2 of measured ones" in said
    assert "host" not in labkit.show.stamp_text(graph)
    assert eager.summary()["bound_by"].item() == "host" and graph.summary()["bound_by"].item() == "compute"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to record on")
def test_nothing_is_recorded_afresh_without_a_gpu(elsewhere):
    with pytest.raises(labkit.LabkitError, match="device='cuda': .*labkit doctor"):
        labcourse.gpu_trace(afresh=True)


def test_a_recording_can_be_left_aside_and_one_without_the_benchmark_mode_asked_for():
    recorded, other = (labcourse.gpu_trace(batch_size=16, benchmark=mode) for mode in (True, False))
    assert recorded.stamp["device"] == other.stamp["device"] == "NVIDIA H200"
    assert other.stamp["cudnn_benchmark"] is False and "SIMULATED" not in other.stamp
    assert "SIMULATED" in labcourse.gpu_trace(recorded=False).stamp
    with pytest.raises(labkit.LabkitError):
        labcourse.gpu_trace("bf16", benchmark=False)
