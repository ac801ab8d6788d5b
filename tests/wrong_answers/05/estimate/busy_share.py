# expects: in which the GPU has no kernel
def estimate(launches, host_us, busy_us):
    step_us = max(launches * host_us, busy_us)
    return step_us, busy_us / step_us
