"""Answers of exercises that only the lessons use: the range of float16, kept memory, and plans for many nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn


def limits(exponent_bits: int, mantissa_bits: int) -> dict[str, float]:
    """The range and the precision of a binary floating-point format with a sign bit.

    Returns:
        | key | meaning |
        |---|---|
        | eps | the distance from 1 to the next larger number |
        | max | the largest finite number |
        | tiny | the smallest positive number with all its bits |
        | smallest | the smallest positive number at all, a subnormal |

    Source: IEEE 754-2019, section 3.3: of the exponents the lowest is for zero and subnormals, the highest for inf and
    nan.
    """
    largest_exponent = 2 ** (exponent_bits - 1) - 1
    eps = 2.0**-mantissa_bits
    tiny = 2.0 ** (1 - largest_exponent)
    return {"eps": eps, "max": (2 - eps) * 2.0**largest_exponent, "tiny": tiny, "smallest": tiny * eps}


def rounding_outcomes(gradients: Tensor, scale: float) -> dict[str, float]:
    """The shares of gradients that are lost or lose bits when they are multiplied by `scale` and turned into float16.

    Args:
        gradients: of any shape, in float32. Zeros among them do not count.
        scale: a positive number, by which a loss is multiplied before the backward pass.

    Returns:
        Shares from 0 to 1: "flushed" to zero, "subnormal" (with fewer than all bits), and "overflowed" to inf or -inf.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
    """
    gradients = gradients[gradients != 0]
    size = (gradients * scale).half().abs()
    subnormal = (size > 0) & (size < torch.finfo(torch.float16).tiny)
    shares = {"flushed": size == 0, "subnormal": subnormal, "overflowed": size.isinf()}
    return {fate: share.double().mean().item() for fate, share in shares.items()}


def kept_bytes(saved: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Bytes that saved tensors hold besides the weights, by the kind of the layer that saved them first.

    Args:
        saved: kinds of layers and tensors, as `saved_tensors` returns them.
    """
    seen: set[int] = set()
    kept: dict[str, int] = {}
    for layer, tensor in saved:
        memory = tensor.untyped_storage()
        if isinstance(tensor, nn.Parameter) or memory.data_ptr() in seen:
            continue
        seen.add(memory.data_ptr())
        kept[layer] = kept.get(layer, 0) + memory.nbytes()
    return kept


def memory_peak(events: Iterable[tuple[str, int]]) -> tuple[int, dict[str, int]]:
    """The highest memory, and who holds how many bytes of it at the first moment that has it.

    Args:
        events: a name and bytes that come, or go if they are below 0, in order: see `labkit.simulate.memory_events`.
    """
    held: dict[str, int] = {}
    peak: tuple[int, dict[str, int]] = 0, {}
    for name, nbytes in events:
        held[name] = held.get(name, 0) + nbytes
        peak = max(peak, (sum(held.values()), dict(held)), key=lambda moment: moment[0])
    return peak


def plan_to_buy(one_process: float, plans: Mapping[str, tuple[Sequence[float], float]]) -> str:
    """The division of a step with the fastest step, of those that use their machines to at least a half.

    The slowest process decides how long a step takes, as in Amdahl's law (Amdahl 1967).

    Args:
        one_process: seconds of a step in one process.
        plans: by name, the seconds of each process, and those that the exchange adds to a step.

    Returns:
        A plan's name, or "one process" if none is at least half as many times faster as it has machines.
    """
    steps = {name: max(processes) + exchange for name, (processes, exchange) in plans.items()}
    worth = {name: step for name, step in steps.items() if one_process / step >= len(plans[name][0]) / 2}
    return min(worth, key=lambda name: worth[name], default="one process")


def best_interval(save_s: float, between_failures_s: float) -> float:
    """The seconds between two checkpoints that lose the least time, in seconds.

    Of the time a share save / interval goes into saving, and a failure costs half an interval of work on average.
    Source: Young 1974, "A first order approximation to the optimum checkpoint interval".
    """
    return math.sqrt(2 * save_s * between_failures_s)
