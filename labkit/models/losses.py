"""The loss terms, each a 0-d tensor."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

GAN_MODES = ("lsgan", "vanilla", "wgangp")


def adversarial_loss(verdict: Tensor, is_real: bool, mode: str = "lsgan") -> Tensor:
    """The distance of a discriminator's verdicts from "real" (1) or "fake" (0).

    Args:
        verdict: unbounded numbers of any shape.
        is_real: the answer to aim at, True for "real".
        mode: "lsgan" is the mean squared difference (Mao et al. 2017). "vanilla" is the cross-entropy of the verdicts
            taken as logits (Goodfellow et al. 2014). "wgangp" is the mean verdict, negated for "real" (Arjovsky et al.
            2017), which has no bound unless a gradient penalty is added.
    """
    if mode == "wgangp":
        return -verdict.mean() if is_real else verdict.mean()
    target = torch.full_like(verdict, float(is_real))
    if mode == "lsgan":
        return F.mse_loss(verdict, target)
    return F.binary_cross_entropy_with_logits(verdict, target)


def cycle_loss(real: Tensor, reconstruction: Tensor, weight: float = 10.0) -> Tensor:
    """`weight` times the mean absolute difference between pictures and their reconstructions after the round trip.

    Shapes: both (B, 3, H, W). Source: Zhu et al. 2017, one direction of equation 2, weighted as in equation 3.
    """
    return weight * F.l1_loss(reconstruction, real)


def identity_loss(real: Tensor, same: Tensor, weight: float = 5.0) -> Tensor:
    """`weight` times the mean absolute change of pictures that already are of the target domain.

    Shapes: both (B, 3, H, W). Source: Zhu et al. 2017, section 5.2 ("Photo generation from paintings").
    """
    return weight * F.l1_loss(same, real)


def deviation_loss(code: Tensor, translated: Tensor, weight: float = 1.0) -> Tensor:
    """`weight` times the mean absolute change of codes in translation.

    Shapes: both (B, C, h, w). Source: the article behind `labkit.DeviationGAN`, which leaves the norm open.
    """
    return weight * F.l1_loss(translated, code)
