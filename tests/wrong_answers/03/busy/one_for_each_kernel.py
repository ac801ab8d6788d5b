# expects: a sum or a mean over all values
def busy(begin, end):
    order = np.argsort(begin)
    latest = np.maximum.accumulate(np.concatenate([[-np.inf], end[order]]))[:-1]
    return np.maximum(0.0, end[order] - np.maximum(latest, begin[order]))
