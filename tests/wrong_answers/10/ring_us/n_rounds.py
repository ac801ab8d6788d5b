# expects: n - 1 rounds are enough
def ring_us(size, ranks, latency_us, bytes_per_s):
    return 2 * ranks * (latency_us + 1e6 * size / ranks / bytes_per_s)
