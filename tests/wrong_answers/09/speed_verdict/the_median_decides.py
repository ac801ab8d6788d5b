# expects: the interval holds 1
def speed_verdict(times, between, noise):
    return "faster" if times > 1 else "slower"
