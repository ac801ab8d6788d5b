"""`labkit doctor` says what is here, what to do about it, and by its exit status whether it must be done."""

import re
import sys
import types

import pytest
import torch

from labkit import devices


@pytest.fixture
def diagnose(call, monkeypatch):
    """A function that runs labkit doctor and gives its exit status, its rows by name, and what there is to do."""
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: [])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    def run():
        status, out, _ = call("doctor")
        table, _, advice = out.partition("\nTo do:\n")
        return status, dict(re.split(r"\s{2,}", line, maxsplit=1) for line in table.splitlines()), advice

    return run


def test_a_machine_without_a_gpu_is_well(diagnose):
    status, rows, _ = diagnose()
    assert status == 0 and rows["GPU, driver"] == "no NVIDIA GPU found"
    assert rows["PyTorch"].startswith(torch.__version__) and rows["cpu"] == "convolution of nine ones: 9"
    assert sys.executable in rows["Python"]


@pytest.mark.parametrize(
    ("reason", "fault"),
    [("", 0), ("no kernels for it: install another build", 1), ("CUDA_VISIBLE_DEVICES='' hides the GPU", 0)],
    ids=["works", "without kernels", "hidden"],
)
def test_a_gpu_works_or_what_mends_it_is_said(diagnose, monkeypatch, reason, fault):
    def convolve(device):
        if device != "cpu" and reason:
            raise RuntimeError("CUDA error")
        return 9.0

    hidden = "hides" in reason
    monkeypatch.setattr(devices, "convolve", convolve)
    monkeypatch.setattr(devices, "why_unusable", lambda error, gpu: reason)
    monkeypatch.setattr(devices, "describe_gpu", lambda gpu: "Tesla V100 (sm_70)")
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: ["Tesla V100, 535.161.08"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0 if hidden else 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: types.SimpleNamespace(total_memory=16e9))
    status, rows, said = diagnose()
    assert status == fault and rows["GPU, driver"] == "Tesla V100, 535.161.08"
    right = "cannot be used" if reason else "Tesla V100 (sm_70), 16 GB, convolution of nine ones: 9"
    assert rows["cuda" if hidden else "cuda:0"] == right and reason in said


BROKEN = [
    (ModuleNotFoundError("No module named 'torch'", name="torch"), "which training needs: pip install torch "),
    (RuntimeError("operator torchvision::nms does not exist"), "install torch and torchvision again"),
]


@pytest.mark.parametrize(("error", "advice"), BROKEN)
def test_pytorch_that_is_missing_or_broken_is_a_fault(diagnose, monkeypatch, error, advice):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "torchvision":
                raise error

    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    status, rows, said = diagnose()
    assert status == 1 and rows["PyTorch"] == str(error)
    assert re.search(f"- PyTorch: .*{re.escape(advice)}", said)
