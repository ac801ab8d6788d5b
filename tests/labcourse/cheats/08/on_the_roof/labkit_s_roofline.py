# expects: your answer calls the library's own labkit.measure.roofline.roofline_seconds
from labkit.measure.roofline import roofline_seconds


def on_the_roof(flops, bytes_moved, flops_per_s, bytes_per_s):
    limit = "memory" if flops / bytes_moved < flops_per_s / bytes_per_s else "arithmetic"
    us = 1e6 * roofline_seconds(flops, bytes_moved, flops_per_s, bytes_per_s)
    return {"flop_per_byte": flops / bytes_moved, "us": us, "limit": limit}
