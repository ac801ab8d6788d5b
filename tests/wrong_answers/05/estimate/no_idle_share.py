# expects: a pair is expected
def estimate(launches, host_us, busy_us):
    return max(launches * host_us, busy_us)
