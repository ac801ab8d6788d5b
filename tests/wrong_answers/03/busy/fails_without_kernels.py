# expects: without any kernel
def busy(begin, end):
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    covered, latest = end[0] - begin[0], end[0]
    for first, last in zip(begin[1:], end[1:], strict=True):
        covered += max(0.0, last - max(latest, first))
        latest = max(latest, last)
    return covered
