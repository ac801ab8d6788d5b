"""Jobs for two real ranks over gloo: what they send, as PyTorch's profiler sees it."""

import json
import math
import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import labkit
from labkit.measure.record import write_profile

SETTINGS = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=24, ndf=4)
SIZE = 32


def model() -> labkit.CycleGAN:
    torch.manual_seed(0)
    return labkit.CycleGAN(**SETTINGS)


def observed(folder: Path) -> dict:
    """The numbers and the type of each message that gloo exchanged in a step."""
    os.environ["KINETO_LOG_LEVEL"] = "6"
    pictures = tuple(torch.rand(1, 3, SIZE, SIZE) * 2 - 1 for _ in range(2))
    step = labkit.make_step(model(), "data_parallel")
    step(*pictures)  # after a first step DDP has its final buckets
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(*pictures)
    shapes = write_profile(profiler, folder / "shapes.json")
    events = [event for event in json.loads(shapes.read_text())["traceEvents"] if "dur" in event]
    sent = [event for event in events if event["name"] == "gloo:all_reduce"]
    sent.sort(key=lambda event: event["args"]["External id"])
    messages = [(math.prod(event["args"]["Input Dims"][0]), event["args"]["Input type"][0]) for event in sent]
    return {"messages": messages}
