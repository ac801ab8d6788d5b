# expects: one of n parts
def ring_us(size, ranks, latency_us, bytes_per_s):
    return 2 * (ranks - 1) * (latency_us + 1e6 * size / bytes_per_s)
