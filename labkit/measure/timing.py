"""Timing with a warm-up, synchronisation, alternation and a spread."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from tqdm.auto import tqdm

from labkit import ranks
from labkit.errors import LabkitError


def synchronise() -> None:
    """Waits until the GPUs that this process uses, if any, have finished all their work."""
    kind = torch.accelerator.current_accelerator()  # the kind that PyTorch is built for, whether it is here or not
    if kind is not None and kind.type != "cuda" and torch.accelerator.is_available():
        torch.accelerator.synchronize()
    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        if torch.cuda.memory_allocated(device):  # to wait for an unused one would take memory there
            torch.cuda.synchronize(device)


def alternate(
    steps: Mapping[str, Callable[..., object]],
    rounds: int = 20,
    warmup: int = 3,
    synchronise: Callable[[], None] = synchronise,
    clock: Callable[[], float] = time.perf_counter,
    given: Iterator[Sequence] | None = None,
) -> dict[str, list[float]]:
    """Seconds that each of the `steps` took, `rounds` times, taken in turn: a, b, b, a, ...

    We take turns because a machine's speed drifts: of two long runs, one after the other, the second might only have
    met a slower machine. The order changes from round to round, because a step may be faster in one place than in
    another, for what its neighbour leaves in the caches. Each measurement begins and ends with a synchronisation, so
    that on a GPU it covers the step's work and not only its launches. The first `warmup` rounds do not count: in them
    memory is allocated and kernels are chosen. Of several ranks the slowest counts. Each call takes the next arguments
    that are `given`, which are made before its clock starts.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in tqdm(range(warmup + rounds), "rounds", delay=5):
        for name in in_order([*steps], turn):
            arguments = () if given is None else next(given)
            synchronise()
            started = clock()
            steps[name](*arguments)
            synchronise()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return {name: ranks.largest(measured) for name, measured in seconds.items()}


def in_order(names: list[str], turn: int) -> list[str]:
    """The order of a round, from 0 on: every two rounds begin with the next name, and the second goes backwards."""
    first = turn // 2 % len(names)
    order = names[first:] + names[:first]
    return order[::-1] if turn % 2 else order


def ratio(seconds: list[float], baseline: list[float]) -> float:
    """How many times longer than the baseline: the median over the rounds, each of which measured both."""
    return statistics.median(ratios(seconds, baseline))


def ratios(seconds: list[float], baseline: list[float]) -> list[float]:
    """How many times longer than the baseline in each round: a disturbance slows both down and cancels."""
    return [mine / its for mine, its in zip(seconds, baseline, strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """A confidence interval of at least 95% for the median of the distribution that `values` were drawn from.

    The median lies below the k-th smallest of n values with the probability that fewer than k of n coins show heads,
    and above the k-th largest with the same probability. We take the largest k for which the two add up to at most 5%.
    Source: Conover, "Practical Nonparametric Statistics", section 3.2.

    Raises:
        LabkitError: there are fewer than 6 values.
    """
    n, below, k = len(values), 0.0, 0
    while 2 * (below + math.comb(n, k) / 2**n) <= 0.05:
        below += math.comb(n, k) / 2**n
        k += 1
    if k == 0:
        raise LabkitError(f"{n} values are too few for a 95% interval: measure at least 6.")
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def spread(seconds: list[float]) -> float:
    """Half the interquartile range, as a share of the median."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle


def has_tf32(device: torch.device) -> bool:
    """Whether TF32 changes anything here: GPUs of compute capability 8.0 (Ampere) and later compute in it."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
