# expects: the rest still takes its time
def amdahl(share, factor):
    if factor == math.inf:
        return math.inf
    return 1 / ((1 - share) + share / factor)
