# expects: the sums must travel, too
def ring_us(size, ranks, latency_us, bytes_per_s):
    return (ranks - 1) * (latency_us + 1e6 * size / ranks / bytes_per_s)
