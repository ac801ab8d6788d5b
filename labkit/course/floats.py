"""The range of floating-point formats, and the outcome of rounding gradients to float16."""

from __future__ import annotations

import torch
from torch import Tensor


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
    """What becomes of gradients if they are multiplied by `scale` and then turned into float16.

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
