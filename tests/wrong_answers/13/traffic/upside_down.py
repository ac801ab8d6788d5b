# expects: below 1
def traffic(values, itemsize, bytes_per_s):
    """{"apart": ..., "fused": ..., "times_faster": ..., "fused_us": ...}."""
    size = values * itemsize
    apart, fused = 5 * size, 2 * size
    return {"apart": apart, "fused": fused, "times_faster": fused / apart, "fused_us": 1e6 * fused / bytes_per_s}
