# expects: the share of time lost
import math


def best_interval(save_s, between_failures_s):
    return math.sqrt(2 * save_s / between_failures_s)
