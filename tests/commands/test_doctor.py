"""`labkit doctor` says what is here, what to do about it, and by its exit status whether it must be done."""

import re
import sys

import pytest
import torch

from labkit import devices


@pytest.fixture
def diagnose(call, monkeypatch):
    """A function that runs labkit doctor and gives its exit status, its rows by name, and what there is to do."""
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: [])

    def run():
        status, out, _ = call("doctor")
        table, _, advice = out.partition("\nTo do: ")
        return status, dict(re.split(r"\s{2,}", line, maxsplit=1) for line in table.splitlines()), advice

    return run


REASONS = [("", 0), ("no kernels for it: install another build", 1), ("CUDA_VISIBLE_DEVICES='' hides the GPU", 0)]


@pytest.mark.parametrize(("reason", "fault"), REASONS, ids=["none or works", "without kernels", "hidden"])
def test_a_gpu_works_or_what_mends_it_is_said(diagnose, monkeypatch, reason, fault):
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: ["Tesla V100, 535.161.08"] if reason else [])
    monkeypatch.setattr(devices, "best_device", lambda: (torch.device("cpu"), reason))
    status, rows, said = diagnose()
    assert status == fault and said.strip() == reason and sys.executable in rows["Python"]
    assert rows["GPU, driver"] == ("Tesla V100, 535.161.08" if reason else "no NVIDIA GPU found")
    assert rows["PyTorch"].startswith(torch.__version__)
    assert rows["computes on"] == "the CPU; a convolution of nine ones: 9"


def test_pytorch_that_is_broken_is_a_fault(diagnose, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "torchvision":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    status, rows, said = diagnose()
    assert status == 1 and rows["PyTorch"] == "operator torchvision::nms does not exist"
    assert "install torch and torchvision again" in said
