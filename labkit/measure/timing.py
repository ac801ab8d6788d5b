"""Timing that means something: warmed up, synchronised, alternated, with its spread."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from labkit.errors import LabkitError


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
    return statistics.median(ratios(seconds, baseline))


def ratios(seconds: list[float], baseline: list[float]) -> list[float]:
    """How many times longer than the baseline in each round: what disturbs a round disturbs both."""
    return [mine / its for mine, its in zip(seconds, baseline, strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """A confidence interval of at least 95% for the median of what `values` are drawn from; it takes 6 of them.

    The median lies below the k-th smallest of n values with the probability that fewer than k of n coins show heads,
    and likewise above the k-th largest; k is the largest for which the two add up to 5% at most. Source: Conover,
    "Practical Nonparametric Statistics", section 3.2.
    """
    n, below, k = len(values), 0.0, 0
    while 2 * (below + math.comb(n, k) / 2**n) <= 0.05:
        below += math.comb(n, k) / 2**n
        k += 1
    if k == 0:
        raise LabkitError(f"{n} values are too few for an interval of 95%: measure at least 6.")
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def spread(seconds: list[float]) -> float:
    """Half the range between the quartiles, as a share of the median."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle


class PeakMemory:
    """Watches, inside ``with``, how much the GPU's allocator holds at most: `bytes`, None where there is no GPU."""

    bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        return self

    def __exit__(self, *error: object) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.bytes = torch.cuda.max_memory_allocated()
