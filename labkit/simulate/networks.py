"""Networks side by side: what they ask for, counted, and what they take, measured."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor, nn

from labkit.measure.timing import alternate
from labkit.simulate.operators import Recorder
from labkit.simulate.schedule import Schedule
from labkit.stamp import stamp

if TYPE_CHECKING:
    import pandas


def network_costs(networks: Mapping[str, nn.Module], picture: Tensor, rounds: int = 6) -> pandas.DataFrame:
    """Parameters, FLOPs, bytes and time of one forward and backward pass of each network, measured in turn.

    FLOPs are those of convolutions; bytes the least that their operators, and all others, have to read and write.
    Where FLOPs over bytes are few, memory sets the time, and fewer FLOPs do not shorten it: see
    `labkit.simulate.cost_model`.

    Args:
        networks: by name, on the picture's device; their gradients are dropped.
        picture: (B, 3, H, W) in [-1, 1], of a size that all of them take.
        rounds: measurements of each, after one that does not count.

    Returns:
        A row a network: parameters; flops; bytes_moved; flop_per_byte; median_s. ``attrs["stamp"]`` says on what it was
        measured, ``attrs["seconds"]`` holds every measurement.
    """
    import pandas

    seconds = alternate({name: _pass(network, picture) for name, network in networks.items()}, rounds, warmup=1)
    rows = {}
    for name, network in networks.items():
        shapes_only = _pass(copy.deepcopy(network).to("meta"), picture.to("meta"))
        with Recorder(Schedule()) as recorder:
            shapes_only()
        flops, moved = (sum(getattr(one, what) for one in recorder.operators) for what in ("flops", "bytes_moved"))
        parameters = sum(weight.numel() for weight in network.parameters())
        rows[name] = [parameters, flops, moved, flops / moved, statistics.median(seconds[name])]
    columns = ["parameters", "flops", "bytes_moved", "flop_per_byte", "median_s"]
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=columns)
    table.attrs = {"stamp": stamp() | {"batch_shape": list(picture.shape), "rounds": rounds}, "seconds": seconds}
    return table


def _pass(network: nn.Module, picture: Tensor) -> Callable[[], None]:
    """A function that runs the network forward and backward, and leaves no gradients."""

    def run() -> None:
        network(picture).mean().backward()
        network.zero_grad()

    return run
