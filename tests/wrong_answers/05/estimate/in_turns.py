# expects: Host and GPU do not take turns
def estimate(launches, host_us, busy_us):
    step_us = launches * host_us + busy_us
    return step_us, 1 - busy_us / step_us
