# expects: are seconds
def ring_us(size, ranks, latency_us, bytes_per_s):
    return 2 * (ranks - 1) * (latency_us + size / ranks / bytes_per_s)
