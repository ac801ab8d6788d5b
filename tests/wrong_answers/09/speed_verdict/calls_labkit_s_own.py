# expects: your answer calls labkit's own labkit.measure.compare.speed_verdict
from labkit.measure import compare


def speed_verdict(times, between, noise):
    word, _ = compare.speed_verdict(times, between, noise)
    return word
