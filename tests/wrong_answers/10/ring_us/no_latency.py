# expects: has its latency, too
def ring_us(size, ranks, latency_us, bytes_per_s):
    return 2 * (ranks - 1) * 1e6 * size / ranks / bytes_per_s
