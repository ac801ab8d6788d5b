"""The speed-ups: one file each, a small named difference to the baseline step."""

from labkit.variants.common import no_shared_casts
from labkit.variants.registry import SPEEDUPS, make_step, speedups

__all__ = ["SPEEDUPS", "make_step", "no_shared_casts", "speedups"]
