# expects: its square
def best_interval(save_s, between_failures_s):
    return 2 * save_s * between_failures_s
