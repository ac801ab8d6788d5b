"""Jobs for two real ranks over gloo: what they send as PyTorch's profiler sees it, and how long a step takes."""

import functools
import json
import math
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import labkit
from labkit.measure import alternate
from labkit.measure.record import export, profiled
from labkit.simulate.communication import measured_network
from tools.survey_items import operator_durations

SETTINGS = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=24, ndf=4)
SIZE, STEPS = 32, 2
LARGE = dict(discriminator="n_layers", n_layers=1)  # 92 MB of gradients, in six buckets
CABLE = 40e6  # bytes a second
ALL_REDUCE = dist.all_reduce


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
    export(profiled(step, pictures, STEPS), folder / "traces" / "trace.json")
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step(*pictures)
    shapes = export(profiler, folder / "shapes.json")
    events = [event for event in json.loads(shapes.read_text())["traceEvents"] if "dur" in event]
    sent = [event for event in events if event["name"] == "gloo:all_reduce"]
    sent.sort(key=lambda event: event["args"]["External id"])
    messages = [(math.prod(event["args"]["Input Dims"][0]), event["args"]["Input type"][0]) for event in sent]
    return {"messages": messages, "network": measured_network(sizes=(2**10, 2**16, 2**20), rounds=3)}


def timed(folder: Path) -> dict:
    """A step over a slow network: the whole, the step without its exchange, and measurements of the parts.

    On a CPU computing takes so long that gloo on one machine hardly matters. So every exchange here is gloo's, and
    then a pause for its bytes in which a thread sleeps, as if they went over a cable to another machine.
    """
    pictures = tuple(torch.rand(1, 3, 16, 16) * 2 - 1 for _ in range(2))
    whole, silent = (labkit.make_step(labkit.CycleGAN(**LARGE), "data_parallel") for _ in range(2))
    with ThreadPoolExecutor(1) as cable:
        for step, exchange in ((whole, _slowly), (silent, _one_number)):
            for ddp in step.ddp.values():
                ddp.register_comm_hook((cable, exchange), _hook)
            for optimizer in step.optimizers.values():
                optimizer.param_groups[0]["foreach"] = True  # as in the counted step: a duration for every operator
        steps = {
            "whole": functools.partial(_run, whole, _slowly, pictures),
            "computed": functools.partial(_run, silent, _one_number, pictures),
        }
        seconds = alternate(steps, rounds=5, warmup=2, synchronise=dist.barrier)
        with mock.patch.object(dist, "all_reduce", _slowly):
            network = measured_network(sizes=(2**5, 2**18, 2**20, 2**23), rounds=3)
        durations = operator_durations(silent, pictures)
    us = {name: 1e6 * statistics.median(each) for name, each in seconds.items()}
    return {"us": us, "network": network, "durations": durations}


def _run(step, exchange, pictures) -> None:
    with mock.patch.object(dist, "all_reduce", exchange):  # of the losses
        step(*pictures)


def _slowly(values: torch.Tensor) -> None:
    ALL_REDUCE(values)
    time.sleep(values.numel() * values.itemsize / CABLE)


def _one_number(values: torch.Tensor) -> None:
    """Next to nothing: the ranks meet as often as otherwise, so their waits for one another count as computing."""
    ALL_REDUCE(values[:1])


def _hook(state, bucket):
    """Exchanges a bucket in the cable's thread, one after the other."""
    cable, exchange = state
    done = torch.futures.Future()

    def send() -> None:
        exchange(bucket.buffer())
        done.set_result(bucket.buffer())

    cable.submit(send)
    return done
