"""Which trace a notebook is shown: a shipped recording with its own stamp, and never one for another."""

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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to record on")
def test_nothing_is_recorded_afresh_without_a_gpu(elsewhere):
    with pytest.raises(labkit.LabkitError, match="device='cuda': .*labkit doctor"):
        labcourse.gpu_trace(afresh=True)


def test_a_recording_without_the_benchmark_mode_can_be_asked_for():
    recorded, other = (labcourse.gpu_trace(batch_size=16, benchmark=mode) for mode in (True, False))
    assert recorded.stamp["device"] == other.stamp["device"] == "NVIDIA H200"
    assert other.stamp["cudnn_benchmark"] is False and "SIMULATED" not in other.stamp


@pytest.mark.parametrize(("speedups", "how"), [(("bf16",), {"benchmark": False}), (("accumulate",), {})])
def test_a_step_that_nobody_has_recorded_is_an_error(speedups, how):
    with pytest.raises(labkit.LabkitError, match=f"b1_{speedups[0]}.json.gz is not shipped here"):
        labcourse.gpu_trace(*speedups, **how)


def test_an_unknown_recording_and_a_missing_folder_are_told(tmp_path, monkeypatch):
    with pytest.raises(labkit.LabkitError, match="did you mean 'resnet50_workers4'"):
        labcourse.public_trace("resnet50_workers5")
    monkeypatch.setattr(shipped, "PUBLIC", tmp_path)
    with pytest.raises(labkit.LabkitError, match="not shipped here: use a clone"):
        labcourse.public_trace("resnet50_workers0")
