"""A stamp says what a result was measured on, as it is at that moment."""

import json

import torch

from labkit.stamp import stamp


def test_flags_are_those_of_the_moment(monkeypatch):
    for flag in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", flag)
        assert stamp()["cudnn_benchmark"] is flag


def test_it_is_json_and_names_device_and_versions():
    read = json.loads(json.dumps(stamp()))
    assert read["torch"] == torch.__version__ and read["device"] and read["threads"] == torch.get_num_threads()
