"""A job for two real ranks over gloo: what they send, when, and how long it takes."""

import json
import os
from pathlib import Path

import torch
from several_ranks import answer

import labkit
from labkit import ranks
from labkit.measure.record import export, profiled
from labkit.simulate.communication import measured_network

SETTINGS = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=24, ndf=4)
SIZE, STEPS = 32, 2


def model() -> labkit.CycleGAN:
    torch.manual_seed(0)
    return labkit.CycleGAN(**SETTINGS)


def observed(folder: Path) -> dict:
    """The messages of recorded steps, as PyTorch's profiler names them, and the group's latency and bandwidth.

    The trace of every rank is in `folder`.
    """
    pictures = tuple(torch.rand(1, 3, SIZE, SIZE) * 2 - 1 for _ in range(2))
    profiler = profiled(labkit.make_step(model(), "data_parallel"), pictures, STEPS)
    file = export(profiler, folder / f"rank{ranks.number()}.json")
    events = json.loads(file.read_text())["traceEvents"]
    sent = [event["args"] for event in events if event.get("name") == "record_param_comms"]
    return {"sent": sent, "network": measured_network(sizes=(2**10, 2**16, 2**20), rounds=3)}


if __name__ == "__main__":
    answer(globals())
