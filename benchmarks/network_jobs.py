"""A step of two real ranks over a slow network, measured: the whole, its parts, and the network between the ranks."""

import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as with_changes
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

import labkit
from labkit.measure import alternate
from labkit.measure.record import preserving_state
from labkit.simulate import replay
from labkit.simulate.clusters import Cluster, Link, all_reduce_us
from labkit.simulate.collectives import SharedStep
from labkit.simulate.many_gpus import with_collectives
from labkit.simulate.meta_device import Operator, call_on
from labtrace.replay.trace_file import Replay

LARGE = dict(discriminator="n_layers", n_layers=1)  # 92 MB of gradients, in six buckets
CABLE = 40e6  # bytes a second
ALL_REDUCE = dist.all_reduce
REPEATS = 10  # of each operator that is timed


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
        with preserving_state(silent), Stopwatch() as stopwatch:
            silent(*pictures)
        durations = stopwatch.microseconds
    us = {name: 1e6 * statistics.median(each) for name, each in seconds.items()}
    return {"us": us, "network": network, "durations": durations}


class Stopwatch(TorchDispatchMode):
    """Microseconds of each operator, by signature: ten times in a row where it first occurs, on the step's tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.microseconds: dict[tuple, float] = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        call = call_on("cpu", operator, args, kwargs, result)
        key = call and (call.name, *call.shapes, call.dtype)
        if key and key not in self.microseconds:
            started = time.perf_counter()
            for _ in range(REPEATS):
                operator(*args, **kwargs)
            self.microseconds[key] = 1e6 * (time.perf_counter() - started) / REPEATS
        return result


def signature(operator: Operator) -> tuple:
    """The key to look an operator's duration up by: those with the same name, shapes and type take equally long."""
    return operator.name, operator.inputs, operator.outputs, operator.dtype


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


def measured_network(sizes: Sequence[int] = (2**12, 2**16, 2**20, 2**23), rounds: int = 9) -> Cluster:
    """The network between this process and the other ranks of its group, MEASURED with all-reduces on the host.

    Of each size the median of `rounds` all-reduces counts, after one that does not. Latency and bandwidth are those of
    a ring, by least squares on the relative error, so that every size counts as much. All ranks must call this
    together, and each gets the numbers of rank 0.

    Args:
        sizes: of the messages, in bytes: multiples of 4.
        rounds: measurements of each size.
    """
    us = [_measured_us(torch.zeros(size // 4), rounds) for size in sizes]
    found = [fitted(list(sizes), us, dist.get_world_size(), f"{dist.get_backend()}, measured")]
    dist.broadcast_object_list(found)
    return Cluster(found[0], gpus_per_node=dist.get_world_size(), start_us=0.0)


def _measured_us(values: torch.Tensor, rounds: int) -> float:
    seconds = []
    for _ in range(1 + rounds):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(values)
        seconds.append(time.perf_counter() - started)
    return 1e6 * statistics.median(seconds[1:])


def fitted(sizes: Sequence[int], us: Sequence[float], ranks: int, name: str) -> Link:
    """The link whose ring of `ranks` comes closest to the microseconds `us` that all-reduces of these sizes took."""
    messages = 2 * (ranks - 1)
    terms = np.array([[messages, messages * size / ranks] for size in sizes])
    weights = 1 / np.asarray(us, dtype=float)
    (latency, us_per_byte), *_ = np.linalg.lstsq(terms * weights[:, None], np.ones(len(us)), rcond=None)
    return Link(name, max(0.0, float(latency)), 1e6 / max(float(us_per_byte), 1e-9))


def _slower(played: Replay, factors: Sequence[float]) -> Replay:
    """The same with each kernel's duration times its factor."""
    pairs = zip(played.launches, factors, strict=True)
    return with_changes(played, launches=[with_changes(one, kernel_us=factor * one.kernel_us) for one, factor in pairs])


def predicted_us(
    step: SharedStep, computed_us: float, durations: Mapping[tuple, float], gpus: int, network: Cluster
) -> float:
    """Microseconds of a step as measurements of its parts predict it, to be held against the whole step: SIMULATED.

    Args:
        step: from `shared_step`.
        computed_us: measured microseconds of the same step if nothing is exchanged.
        durations: measured microseconds by `signature`; they say how `computed_us` divides.
        gpus: the number of ranks; "GPUs" may be processes on a CPU.
        network: measured, from `measured_network`.
    """
    played = with_changes(replay(step.operators, 0.0, steps=1), gap_us=0.0)
    modelled: dict[int, float] = defaultdict(float)  # by the operator's place, for all its kernels together
    for launch, source in zip(played.launches, played.sources, strict=True):
        modelled[source.operator] += launch.kernel_us
    measured = {place: durations.get(signature(step.operators[place]), us) / us for place, us in modelled.items()}
    places = [source.operator for source in played.sources]
    played = _slower(played, [measured[place] for place in places])
    played = _slower(played, [computed_us / played.timeline.wall] * len(places))
    return with_collectives(played, step, lambda one: all_reduce_us(one.bytes, gpus, network), 0.0).wall
