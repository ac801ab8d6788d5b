"""The check of `in_buckets` where all gradients together do not fill a bucket."""

import pytest

from labcourse.check.answers import WrongAnswer
from labcourse.check.notebook_10 import _check_sends

GRADIENTS = [("gradient", 64), ("gradient", 16)]


def test_what_never_fills_a_bucket_leaves_after_the_backward_pass():
    _check_sends(GRADIENTS, [("sent", 80), ("wait", 0)], bucket_bytes=200)


def test_what_fills_one_has_to_leave_before():
    with pytest.raises(WrongAnswer, match="nothing leaves before the backward pass ends"):
        _check_sends(GRADIENTS, [("sent", 80), ("wait", 0)], bucket_bytes=60)
