"""Formats have the limits that PyTorch knows, and gradients in float16 the fate that rounding gives them."""

import pytest
import torch

from labkit.course.floats import limits, rounding_outcomes


@pytest.mark.parametrize(
    "dtype, bits, whole",
    [
        (torch.float16, (5, 10), torch.int16),
        (torch.bfloat16, (8, 7), torch.int16),
        (torch.float32, (8, 23), torch.int32),
        (torch.float64, (11, 52), torch.int64),
    ],
)
def test_limits_follow_from_the_bits(dtype, bits, whole):
    known = torch.finfo(dtype)
    smallest = torch.tensor(1, dtype=whole).view(dtype).item()  # only the last bit is set
    assert limits(*bits) == {"eps": known.eps, "max": known.max, "tiny": known.tiny, "smallest": smallest}


def test_outcomes_are_shares_of_what_is_not_zero():
    gradients = torch.tensor([[0.0, 1e-9, -1e-9, 1e-6], [-1e-6, 1.0, 1e5, 0.0]])
    assert rounding_outcomes(gradients, 1.0) == pytest.approx(
        {"flushed": 2 / 6, "subnormal": 2 / 6, "overflowed": 1 / 6}
    )


def test_a_scale_moves_gradients_from_one_end_to_the_other():
    gradients = torch.tensor([1e-8, -1e-3])
    assert rounding_outcomes(gradients, 1.0) == {"flushed": 0.5, "subnormal": 0.0, "overflowed": 0.0}
    assert rounding_outcomes(gradients, 2.0**10) == {"flushed": 0.0, "subnormal": 0.5, "overflowed": 0.0}
    assert rounding_outcomes(gradients, 2.0**27) == {"flushed": 0.0, "subnormal": 0.0, "overflowed": 0.5}
