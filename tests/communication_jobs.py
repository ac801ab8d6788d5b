"""Jobs for two real ranks over gloo: what they send as PyTorch's profiler sees it, and how long a step takes."""

import json
import math
import os
import statistics
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from several_ranks import answer
from torch.profiler import ProfilerActivity, profile

import labkit
from labkit import ranks
from labkit.measure import alternate
from labkit.measure.durations import operator_durations
from labkit.measure.record import export, profiled
from labkit.simulate.communication import measured_network

SETTINGS = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=24, ndf=4)
SIZE, STEPS = 32, 2


def model() -> labkit.CycleGAN:
    torch.manual_seed(0)
    return labkit.CycleGAN(**SETTINGS)


def observed(folder: Path) -> dict:
    """What gloo exchanged in a step: bytes and type of each message; and the latency and bandwidth of the group.

    The traces of both ranks are in the folder "traces".
    """
    os.environ["KINETO_LOG_LEVEL"] = "6"
    pictures = tuple(torch.rand(1, 3, SIZE, SIZE) * 2 - 1 for _ in range(2))
    step = labkit.make_step(model(), "data_parallel")
    (folder / "traces").mkdir(exist_ok=True)
    export(profiled(step, pictures, STEPS), folder / "traces" / f"rank{ranks.number()}.json")
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(*pictures)
    shapes = export(profiler, folder / f"shapes{ranks.number()}.json")
    events = [event for event in json.loads(shapes.read_text())["traceEvents"] if "dur" in event]
    sent = [event for event in events if event["name"] == "gloo:all_reduce"]
    sent.sort(key=lambda event: event["args"]["External id"])
    messages = [(math.prod(event["args"]["Input Dims"][0]), event["args"]["Input type"][0]) for event in sent]
    return {"messages": messages, "network": measured_network(sizes=(2**10, 2**16, 2**20), rounds=3)}


def timed(folder: Path) -> dict:
    """A step of large networks on small pictures: the whole, the step without its exchange, and the parts of both."""
    settings, size = dict(discriminator="n_layers", n_layers=1), 16
    pictures = tuple(torch.rand(1, 3, size, size) * 2 - 1 for _ in range(2))
    step, silent = (labkit.make_step(labkit.CycleGAN(**settings), "data_parallel") for _ in range(2))
    for ddp in silent.ddp.values():
        ddp.register_comm_hook(None, _keeps)

    def without_exchange() -> None:
        with mock.patch.object(dist, "all_reduce", lambda values: None):
            silent(*pictures)

    steps = {"whole": lambda: step(*pictures), "computed": without_exchange}
    seconds = alternate(steps, rounds=12, warmup=3, synchronise=dist.barrier)
    network = measured_network(sizes=(2**5, 2**20, 2**23, 2**25))
    return {
        "settings": settings,
        "size": size,
        "us": {name: 1e6 * statistics.median(each) for name, each in seconds.items()},
        "network": network,
        "durations": operator_durations(silent, pictures),
    }


def _keeps(state, bucket):
    """A hook that exchanges nothing."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


if __name__ == "__main__":
    answer(globals())
