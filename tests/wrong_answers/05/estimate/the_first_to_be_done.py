# expects: take the longer of the two
def estimate(launches, host_us, busy_us):
    step_us = min(launches * host_us, busy_us)
    return step_us, 1 - busy_us / step_us
