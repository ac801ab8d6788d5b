"""Timing that means something: warmed up, synchronised, alternated, with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def synchronise() -> None:
    """Waits until the GPU, if there is one, has done all it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def alternate(
    steps: Mapping[str, Callable[[], object]],
    rounds: int = 20,
    warmup: int = 3,
    synchronise: Callable[[], None] = synchronise,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds each of the `steps` took, `rounds` times, taken in turn: a, b, a, b, ...

    In turn, since a machine's speed drifts: two long runs one after the other would compare the machine with
    itself. Each measurement begins and ends with a synchronisation, so that on a GPU it holds the step's work and
    not only its launching. `warmup` rounds are not counted: in them memory is allocated and kernels are chosen.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(warmup + rounds):
        for name, step in steps.items():
            synchronise()
            started = clock()
            step()
            synchronise()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def ratio(seconds: list[float], baseline: list[float]) -> float:
    """How many times longer than the baseline: the median over the rounds, each of which measured both."""
    return statistics.median(mine / its for mine, its in zip(seconds, baseline, strict=True))


def spread(seconds: list[float]) -> float:
    """Half the range between the quartiles, as a share of the median."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle


def peak_memory(step: Callable[[], object]) -> int | None:
    """Bytes the GPU's allocator held at most while `step` ran; None without a GPU, where PyTorch does not count."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
