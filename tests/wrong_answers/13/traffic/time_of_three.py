# expects: take the bytes of the one
def traffic(values, itemsize, bytes_per_s):
    """{"apart": ..., "fused": ..., "times_faster": ..., "fused_us": ...}."""
    size = values * itemsize
    apart, fused = 5 * size, 2 * size
    return {"apart": apart, "fused": fused, "times_faster": apart / fused, "fused_us": 1e6 * apart / bytes_per_s}
