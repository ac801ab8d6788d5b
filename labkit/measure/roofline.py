"""What this device can do at most, measured, and what a step asks of it."""

from __future__ import annotations

import statistics

import torch

from labkit.measure.record import Batch, as_found
from labkit.measure.timing import alternate
from labkit.networks.counting import flop_counter
from labkit.step import Step


def matmul_rate(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """FLOP/s of a large matrix product: the most that arithmetic can reach here, as one sum of products.

    Random numbers, since zeros take less power and run faster on a GPU. TF32 counts in if its flag is set.
    """
    n = 8192 if torch.device(device).type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    seconds = alternate({"matmul": lambda: a @ b}, rounds=10)["matmul"]
    return 2 * n**3 / statistics.median(seconds)


def copy_rate(device: torch.device | str = "cpu") -> float:
    """Bytes/s that a copy inside the device's memory moves, read and written ones counted."""
    n = 2**28 if torch.device(device).type == "cuda" else 2**25
    source = torch.ones(n, device=device)
    target = torch.empty_like(source)
    seconds = alternate({"copy": lambda: target.copy_(source)}, rounds=10)["copy"]
    return 2 * source.nbytes / statistics.median(seconds)


def roofline_seconds(flops: float, bytes_moved: float, flops_per_s: float, bytes_per_s: float) -> float:
    """The least seconds for this work: computing and moving go on at the same time, and the longer of the two counts.

    Source: Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", 2009.
    """
    return max(flops / flops_per_s, bytes_moved / bytes_per_s)


def amdahl(share: float, factor: float) -> float:
    """How many times faster the whole gets if the part that takes `share` of its time gets `factor` times faster.

    `share` in [0, 1), `factor` positive; with an infinite factor it is the most that work on this part can bring. It
    holds for parts that follow one another, not for ones that overlap. Source: Amdahl 1967.
    """
    return 1 / (1 - share + share / factor)


def step_flops(step: Step, batch: Batch) -> int:
    """Floating-point operations of one whole step, forward and backward; a multiplication and an addition are two.

    Counts convolutions and matrix products, as is usual. Runs the step once, and leaves it as it was found.
    """
    with as_found(step), flop_counter() as counter:
        step(*batch)
    return counter.get_total_flops()
