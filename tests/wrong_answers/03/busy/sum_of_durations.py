# expects: sum of the durations
def busy(begin, end):
    return float(np.sum(end - begin))
