"""The cost of networks: what they compute and move, counted, and the time that they take, measured."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping

import pandas
from torch import Tensor, nn

from labkit.measure.timing import alternate
from labkit.simulate.meta_device import Recorder
from labkit.stamp import stamp

ROUNDS = 6  # measurements of each network, after one that does not count


def network_costs(networks: Mapping[str, nn.Module], picture: Tensor) -> pandas.DataFrame:
    """Parameters, FLOPs, bytes and time of one forward and backward pass of each network.

    FLOPs and bytes are counted: the FLOPs of convolutions, and the least number of bytes that all operators have to
    read and write. The time is measured, in turn for each network. Where there are few FLOPs for each byte, memory
    limits the time, and fewer FLOPs do not shorten it.

    Args:
        networks: by name, on the picture's device. Their gradients are dropped.
        picture: (B, 3, H, W) in [-1, 1], of a size that all networks take.

    Returns:
        A row a network: parameters, flops, bytes_moved, flop_per_byte, median_s. ``attrs["stamp"]`` names
        the device, ``attrs["seconds"]`` holds every measurement.
    """
    seconds = alternate({name: _pass(network, picture) for name, network in networks.items()}, ROUNDS, warmup=1)
    rows = {}
    for name, network in networks.items():
        shapes_only = _pass(copy.deepcopy(network).to("meta"), picture.to("meta"))
        with Recorder() as recorder:
            shapes_only()
        flops = sum(operator.flops for operator in recorder.operators)
        moved = sum(operator.bytes_moved for operator in recorder.operators)
        parameters = sum(weight.numel() for weight in network.parameters())
        rows[name] = [parameters, flops, moved, flops / moved, statistics.median(seconds[name])]
    columns = ["parameters", "flops", "bytes_moved", "flop_per_byte", "median_s"]
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.attrs = {"stamp": stamp() | {"batch_shape": list(picture.shape), "rounds": ROUNDS}, "seconds": seconds}
    return table


def _pass(network: nn.Module, picture: Tensor) -> Callable[[], None]:
    """A function that runs the network forward and backward, and leaves no gradients."""

    def run() -> None:
        network(picture).mean().backward()
        network.zero_grad()

    return run
