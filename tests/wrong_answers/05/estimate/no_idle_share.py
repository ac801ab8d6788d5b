# expects: a tuple of 2 values
def estimate(launches, host_us, busy_us):
    return max(launches * host_us, busy_us)
