"""A device is tried before it is taken, and "auto" says why it takes the CPU."""

import sys
import warnings
from unittest.mock import Mock

import pytest
import torch

import labkit
from labkit import devices
from labkit.measure import timing

TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver by ..."
NO_KERNELS = "CUDA error: no kernel image is available for execution on the device\nSearch for `cudaErrorNoKernel..."
HIDDEN = "No CUDA GPUs are available"
WITHOUT_CUDA = AssertionError("Torch not compiled with CUDA enabled")


@pytest.fixture
def p100(monkeypatch):
    """A function that gives this machine a P100, on which PyTorch raises an error, or whose nvidia-smi lists none."""
    devices.best_device.cache_clear()
    convolve = devices.convolve

    def make(error, listed=("Tesla P100-PCIE-16GB, 550.90.07",)):
        def fails(device):
            if str(device).startswith("cuda"):
                raise error
            return convolve(device)

        monkeypatch.setattr(devices, "convolve", fails)
        monkeypatch.setattr(devices, "nvidia_gpus", lambda: list(listed))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 0))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla P100-PCIE-16GB")
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
        seen = error is not WITHOUT_CUDA and HIDDEN not in str(error)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: int(seen))
        monkeypatch.setattr(torch.version, "cuda", "13.2")

    yield make
    devices.best_device.cache_clear()


REASONS = [
    (RuntimeError(TOO_OLD), "the driver is too old for CUDA 13.2, .*update it, or install another one"),
    (WITHOUT_CUDA, "is built without CUDA; install another one"),
    (RuntimeError(NO_KERNELS), r"no kernels for Tesla P100-PCIE-16GB \(sm_60\), only for sm_75, sm_80; install"),
    (RuntimeError(HIDDEN), "CUDA_VISIBLE_DEVICES='' hides the GPU"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
]


@pytest.mark.parametrize(("error", "reason"), REASONS, ids=["driver", "build", "architecture", "hidden", "other"])
def test_auto_says_why_it_takes_the_cpu(p100, monkeypatch, error, reason):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    p100(error)
    with pytest.warns(UserWarning, match=f"^computing on the CPU: .*{reason}"):
        assert labkit.pick_device() == torch.device("cpu")
    with pytest.raises(labkit.LabkitError, match=f"^device='cuda:0': .*{reason}.*. Use device='cpu'"):
        labkit.pick_device("cuda:0")


def test_it_says_so_once_and_nothing_where_there_is_no_gpu(p100):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        p100(RuntimeError(NO_KERNELS), listed=())
        labkit.pick_device()
        assert not said
        devices.best_device.cache_clear()
        p100(RuntimeError(NO_KERNELS))
        labkit.pick_device()
        labkit.pick_device()
    assert len(said) == 1


def test_auto_takes_a_gpu_that_computes(monkeypatch):
    devices.best_device.cache_clear()
    monkeypatch.setattr(devices, "convolve", lambda device: 9.0)
    assert labkit.pick_device().type == "cuda"
    devices.best_device.cache_clear()


def test_gpus_are_listed_with_their_driver_or_not_at_all(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.nvidia_gpus() == []
    for status, listed in ((0, ["Tesla T4, 580.82.07"]), (9, [])):
        program.write_text(f"#!{sys.executable}\nprint('Tesla T4, 580.82.07')\nraise SystemExit({status})\n")
        program.chmod(0o755)
        assert devices.nvidia_gpus() == listed


# ---- other devices


def test_another_device_is_taken_with_a_warning(monkeypatch):
    monkeypatch.setattr(devices, "convolve", lambda device: 9.0)
    with pytest.warns(UserWarning, match="never tried on the device 'mps'"):
        assert labkit.pick_device("mps").type == "mps"


@pytest.mark.parametrize("name", ["mps", "hpu", "gpu"])
def test_a_device_that_is_not_here_is_refused_without_advice_on_cuda(monkeypatch, name):
    monkeypatch.setattr(devices, "convolve", Mock(side_effect=WITHOUT_CUDA))
    with pytest.raises(labkit.LabkitError, match=f"device='{name}': PyTorch .* cannot compute on it here. Use") as said:
        labkit.pick_device(name)
    assert "CUDA" not in str(said.value)


def test_times_wait_for_other_devices_and_not_for_a_gpu_that_is_not_used(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append("waits"))
    for kind, waited in ((None, 0), ("cuda", 0), ("mps", 1)):
        here = kind and torch.device(kind)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda here=here: here)
        timing.synchronise()
        assert len(waits) == waited, kind


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_16_bits_are_refused_on_a_mac(tiny, elsewhere, name):
    with pytest.raises(labkit.LabkitError, match=f"'{name}': training in 16 bits on 'mps'"):
        labkit.make_step(elsewhere(tiny(), "mps"), name)


def test_what_the_profiler_does_not_see_is_not_recorded(tiny, batch, tmp_path, elsewhere):
    step = labkit.make_step(tiny())
    elsewhere(step.model, "mps")
    with pytest.raises(labkit.LabkitError, match="device='mps': only work on a CPU or a CUDA GPU is recorded"):
        labkit.record(step, batch(), tmp_path / "trace.json")
