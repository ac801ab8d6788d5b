"""The type of an answer in words."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import numpy as np
from torch import Tensor


def kind(value: object) -> str:
    """The type of an answer in words, with the shape of a tensor or an array, a dict's keys, a tuple's length."""
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, Tensor | np.ndarray):
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {tuple(value.shape)}"
    if isinstance(value, Real) and not isinstance(value, bool):
        return "a number"
    return {"str": "a word", "NoneType": "None"}.get(type(value).__name__, f"a {type(value).__name__}")
