# expects: each end along with it
def busy(begin, end):
    covered, latest = 0.0, -np.inf
    for first, last in zip(sorted(begin), end, strict=True):
        covered += max(0.0, last - max(latest, first))
        latest = max(latest, last)
    return covered
