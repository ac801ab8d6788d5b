# expects: must count
def best_interval(save_s, between_failures_s):
    return between_failures_s / 2
