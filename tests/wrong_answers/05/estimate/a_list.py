# expects: not a list
def estimate(launches, host_us, busy_us):
    step_us = max(launches * host_us, busy_us)
    return [step_us, 1 - busy_us / step_us]
