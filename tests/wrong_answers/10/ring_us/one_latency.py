# expects: a message in every round
def ring_us(size, ranks, latency_us, bytes_per_s):
    return latency_us + 2 * (ranks - 1) * 1e6 * size / ranks / bytes_per_s
