# expects: a word is expected, not a bool
def speed_verdict(times, between, noise):
    return between[0] > max(1, noise[1])
