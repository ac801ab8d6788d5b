# expects: only two numbers a plane
def traffic(values, itemsize, bytes_per_s):
    """{"apart": ..., "fused": ..., "times_faster": ..., "fused_us": ...}."""
    size = values * itemsize
    apart, fused = 6 * size, 2 * size
    return {"apart": apart, "fused": fused, "times_faster": apart / fused, "fused_us": 1e6 * fused / bytes_per_s}
