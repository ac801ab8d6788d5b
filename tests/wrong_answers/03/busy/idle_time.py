# expects: the GPU was idle
def busy(begin, end):
    order = np.argsort(begin)
    latest = np.maximum.accumulate(end[order])
    return np.maximum(0.0, begin[order][1:] - latest[:-1]).sum()
