# expects: where is that half
import math


def best_interval(save_s, between_failures_s):
    return math.sqrt(save_s * between_failures_s)
