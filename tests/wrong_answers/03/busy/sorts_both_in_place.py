# expects: the arrays you were given were changed
def busy(begin, end):
    order = np.argsort(begin)
    begin[:], end[:] = begin[order], end[order]
    covered, latest = 0.0, -np.inf
    for first, last in zip(begin, end, strict=True):
        covered += max(0.0, last - max(latest, first))
        latest = max(latest, last)
    return covered
