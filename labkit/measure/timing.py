"""Timing that means something: warmed up, synchronised, alternated, with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def alternate(steps: Mapping[str, Callable[[], object]], rounds: int = 20, warmup: int = 3) -> dict[str, list[float]]:
    """Seconds each of the `steps` took, `rounds` times, taken in turn: a, b, a, b, ...

    In turn, since a machine's speed drifts: two long runs one after the other would compare the machine with
    itself. Each measurement begins and ends with a synchronisation, so that on a GPU it holds the step's work and
    not only its launching. `warmup` rounds are not counted: in them memory is allocated and kernels are chosen.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(warmup + rounds):
        for name, step in steps.items():
            _synchronise()
            started = time.perf_counter()
            step()
            _synchronise()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: list[float], baseline: list[float]) -> float:
    """How many times longer than the baseline, as the median over the rounds: both were in each round."""
    return statistics.median(mine / its for mine, its in zip(seconds, baseline, strict=True))


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
