"""The check of `in_buckets` where all gradients together do not fill a bucket."""

from labcourse.check.notebook_10 import _check_sends

GRADIENTS = [("gradient", 64), ("gradient", 16)]


def test_what_never_fills_a_bucket_leaves_after_the_backward_pass():
    _check_sends(GRADIENTS, [("sent", 80), ("wait", 0)], bucket_bytes=200)
