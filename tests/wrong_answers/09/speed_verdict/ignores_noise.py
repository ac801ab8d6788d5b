# expects: the baseline against itself differs by as much
def speed_verdict(times, between, noise):
    if between[0] > 1:
        return "faster"
    return "slower" if between[1] < 1 else "no difference"
